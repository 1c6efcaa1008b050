"""How much a run may use: turns, tokens, dollars, time."""
