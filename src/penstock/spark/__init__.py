"""The one door to pyspark."""
