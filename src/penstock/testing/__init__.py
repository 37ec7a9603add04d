"""Twins of real parts that pass the same contract suites."""
