"""Small expenses in a text file."""
