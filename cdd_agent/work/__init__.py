"""Work items: their order, the state of a run on disk, and the handoffs between phases."""
