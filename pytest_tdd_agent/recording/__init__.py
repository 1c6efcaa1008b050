"""Record and stream the events of a run."""
