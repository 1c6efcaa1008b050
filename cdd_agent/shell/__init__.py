"""What a command line would do, and whether the user must be asked before it runs."""
