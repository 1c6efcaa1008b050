"""Definitions of the project by name: finding them, their uses, exact edits, and renaming."""
