"""What the sentences of a spec have to keep to be of use to a test."""
