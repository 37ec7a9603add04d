"""Frozen values of the domain; only the standard library is imported."""
