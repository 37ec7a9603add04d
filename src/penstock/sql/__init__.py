"""What is said: statements to values, and values back to statements."""
