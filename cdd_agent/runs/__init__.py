"""History of orchestrated runs, read from handoff notes, and rollback to an earlier commit."""
