"""What is guarded: names that no agent writes, files that are not read out, texts shaped like keys."""
