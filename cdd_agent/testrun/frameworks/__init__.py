"""Test frameworks other than pytest: how each is found, run and read."""
