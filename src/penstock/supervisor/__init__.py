"""The supervisor of a node, which starts, watches and stops one runner per job."""
