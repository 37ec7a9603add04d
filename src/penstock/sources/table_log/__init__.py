"""Delta tables as streams: first a snapshot, then the table's log."""
