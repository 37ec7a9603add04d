"""Credentials and clients of AWS."""
