"""The audit: checks the claims of handoff notes against the history and against new test runs."""
