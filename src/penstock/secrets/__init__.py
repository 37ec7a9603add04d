"""Encrypt secrets and store them in the catalog."""
