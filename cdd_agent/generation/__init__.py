"""Turns a planning graph into a repository: its skeleton, its assembly, and the diagnosis of a failing node."""
