"""Tests that are run by what a language has of its own, or by a target that somebody wrote."""
