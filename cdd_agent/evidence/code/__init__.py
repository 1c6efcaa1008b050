"""What can be told from the sources alone. Pure."""
