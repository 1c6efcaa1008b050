"""What a command line would do, as far as its text tells: a class for each part, and whether it would lose work."""
