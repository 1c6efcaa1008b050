"""Judge the effect of a command line, and ask the user before it runs if necessary."""
