"""The terminal: events as lines a person reads, and the chat prompt."""
