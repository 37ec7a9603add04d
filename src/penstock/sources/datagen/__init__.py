"""Generated rows as a source, for first steps, tests and benchmarks."""
