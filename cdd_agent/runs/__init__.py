"""Runs, the sources of their work, and their records: state, history, forks, moves to points of the past."""
