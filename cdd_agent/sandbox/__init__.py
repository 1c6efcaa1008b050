"""Where programs run that a model wrote or asked for: the port, the rungs that fulfill it, and the choice of one."""
