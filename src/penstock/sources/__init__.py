"""Source kinds, and the formats of their records."""
