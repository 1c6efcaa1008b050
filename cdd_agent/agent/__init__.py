"""One agent's turns: tools with checked inputs, budgets, and the loop from a request to the end of a run."""
