"""GREEN on its own: code for tests that fail already."""
