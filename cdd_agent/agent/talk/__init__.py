"""What was said: kept on disk, read back, made shorter."""
