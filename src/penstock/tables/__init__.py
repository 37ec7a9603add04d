"""What is written: Delta tables, their files and their log."""
