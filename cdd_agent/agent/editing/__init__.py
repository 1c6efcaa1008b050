"""Changing files: one piece by another, and whole files from fenced blocks."""
