"""A person looks: what a step changed, on what evidence it landed, and what was decided about it."""
