"""Settings of one node: flags, environment, file, defaults, in that order."""
