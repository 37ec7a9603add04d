"""The loop of load jobs: plan, run, ack, commit."""
