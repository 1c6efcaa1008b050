"""Runs of the orchestrator: what their notes record, and rollback to an earlier commit."""
