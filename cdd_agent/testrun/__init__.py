"""The proof: which interpreter a project uses, and one run of its tests read back as a report."""
