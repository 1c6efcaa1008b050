"""What the program checks once RED or GREEN is open: do the tests judge the change, and is the run honest."""
