"""Files and buckets: list, read, write."""
