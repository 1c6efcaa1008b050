"""The audit: what handoff notes claim, held against the history and against test runs that are made anew."""
