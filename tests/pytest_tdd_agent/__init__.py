"""Tests of the plugin; a module for each of its modules."""
