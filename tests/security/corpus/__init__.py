"""Injections: texts that speak to a model out of a project, and what a model does that obeys them to the letter."""
