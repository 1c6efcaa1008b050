"""Input that cdd did not write: documents, paths, keys and texts, checked before use."""
