"""Streaming tables: watermark, checkpoint, recovery and the query that Spark runs."""
