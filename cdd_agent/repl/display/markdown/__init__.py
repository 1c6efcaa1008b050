"""Markdown that comes in pieces, as rows of the terminal, each of which is given out once. Pure."""
