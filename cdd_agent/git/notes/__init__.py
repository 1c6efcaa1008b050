"""Handoff notes: written and read one by one, all at once, mended, and exchanged with other repositories."""
