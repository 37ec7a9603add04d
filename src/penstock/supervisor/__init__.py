"""Makes it run: one supervisor per node, one runner per job."""
