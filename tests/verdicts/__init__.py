"""Cheats and honest changes, one file each, and how an attempt with each of them is judged today."""
