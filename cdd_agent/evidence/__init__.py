"""Checks after RED and GREEN: whether the tests test the change, and whether the run is honest."""
