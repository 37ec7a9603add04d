"""Parse SQL statements into values, and format values as statements."""
