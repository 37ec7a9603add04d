"""The interactive SQL prompt."""
