"""Load jobs: plan, run, ack, commit."""
