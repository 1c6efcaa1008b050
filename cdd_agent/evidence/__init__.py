"""What the program checks once a GREEN gate is open: do the targets prove the change, and is the run honest."""
