"""What happens in a run, gathered and streamed."""
