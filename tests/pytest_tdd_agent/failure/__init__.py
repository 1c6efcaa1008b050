"""Tests of how failures are told."""
