"""The command line: commands, the run's display, doctor and the SQL prompt."""
