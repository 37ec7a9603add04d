"""The parts that every epoch needs: takeover, task, ack, commit."""
