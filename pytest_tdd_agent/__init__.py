"""A pytest plugin that reports every test as data and opens or closes the gates of test-driven development."""
