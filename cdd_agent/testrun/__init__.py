"""Finds the interpreter or tool that a project uses, runs its tests and reads the results as one report."""
