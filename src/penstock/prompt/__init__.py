"""The interactive SQL prompt: what is typed, completed, kept, run and shown."""
