"""What stands on the terminal: rows that are final, and one below them that says what is going on."""
