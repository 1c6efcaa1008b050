"""Handoff notes: written and read one by one, all at once, mended, and exchanged with other repositories."""

from cdd_agent.git.notes.store import append_line as append_line
