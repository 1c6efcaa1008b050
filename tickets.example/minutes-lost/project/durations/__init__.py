"""Durations as people write them."""

from durations.reading import minutes

__all__ = ["minutes"]
