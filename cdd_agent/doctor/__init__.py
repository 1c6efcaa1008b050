"""What must work before a run can begin, each thing looked at on its own, with what to type where it does not."""
