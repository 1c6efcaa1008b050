"""What a program on any confined rung may see: of the machine, and of what its command names."""
