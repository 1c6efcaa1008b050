"""The orchestrator: a feature, one listed test a cycle, an agent for each phase."""
