"""What comes next: the order of work items and the state of a run, kept so that a killed run can resume."""
