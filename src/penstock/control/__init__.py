"""Execution of statements: changes of the catalog, and SHOW results."""
