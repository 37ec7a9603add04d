"""Delta tables: their files, their log and their commits."""
