"""The stub step: do new tests that fail for want of a name judge anything once it is there."""
