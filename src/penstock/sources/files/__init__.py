"""Files of a folder or bucket as a source."""
