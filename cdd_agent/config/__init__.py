"""Settings, trust, and the options of the command line."""
