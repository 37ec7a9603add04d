"""Credentials of AWS."""
