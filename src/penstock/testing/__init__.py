"""Fakes of tables and executors that pass the contract suites of the real ones."""
