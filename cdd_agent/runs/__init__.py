"""Runs, what they take their work from, and what they leave: state, history, forks, moves to points of the past."""
