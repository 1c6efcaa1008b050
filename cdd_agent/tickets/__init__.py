"""What is asked: the ticket's folder, its spec and its plan, read from and written to files people edit by hand."""
