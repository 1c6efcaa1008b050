"""Tests of cdd_agent.review."""
