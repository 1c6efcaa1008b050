"""Hand-written doubles of the ports, and a loopback model server."""
