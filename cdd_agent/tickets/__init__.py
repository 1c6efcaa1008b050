"""Tickets: the folder, the spec and the plan, which people edit by hand."""
