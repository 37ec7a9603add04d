"""Generated rows as a source, for first tries, tests and benchmarks."""
