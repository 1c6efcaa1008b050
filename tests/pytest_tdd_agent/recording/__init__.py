"""Tests of what gathers a run."""
