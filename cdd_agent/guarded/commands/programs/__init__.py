"""What is known about programs: which of their words and options read, write, run tests, or throw work away."""
