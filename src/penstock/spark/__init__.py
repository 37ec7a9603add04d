"""All code that uses pyspark for load jobs and SELECTs over tables."""
