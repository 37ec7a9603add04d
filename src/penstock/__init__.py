"""Streaming loads into Delta tables, managed by SQL, each row exactly once."""
