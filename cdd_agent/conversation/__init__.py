"""Conversations with Socrates, who questions a ticket into a spec, and the Planner, who turns the spec into a plan."""
