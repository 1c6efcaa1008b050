"""One work item: taken through RED, GREEN and REFACTOR, judged by the gate, landed as commits with their evidence."""
