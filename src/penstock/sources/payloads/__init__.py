"""The bytes of stream records to Arrow rows, by the readers of files."""
