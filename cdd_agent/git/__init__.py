"""The history: one way to call git, snapshots of the work tree, and handoff notes."""
