"""From what JavaScript tools write of a run to the records that gates judge."""
