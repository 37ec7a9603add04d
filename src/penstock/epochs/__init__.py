"""What every epoch needs: takeover, task, ack, commit."""
