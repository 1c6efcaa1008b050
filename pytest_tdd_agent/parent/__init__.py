"""Judge a run from outside of the process that runs the tests."""
