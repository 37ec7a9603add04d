"""Arrow types, casts and JSON text."""
