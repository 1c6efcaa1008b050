"""Diffs of commits, and comments on their lines that follow the code when it moves."""
