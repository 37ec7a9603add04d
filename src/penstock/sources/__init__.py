"""What is read."""
