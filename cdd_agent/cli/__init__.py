"""The command line: words to calls, events to output, errors to exit codes."""
