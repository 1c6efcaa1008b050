"""What lies behind a run: what its notes tell, where it stands, and the way back to any of its commits."""
