"""The long proofs, run by ``make soak``: each with its bar and what was found, in one table."""
