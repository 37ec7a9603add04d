"""Bytes to Arrow record batches, one module per format."""
