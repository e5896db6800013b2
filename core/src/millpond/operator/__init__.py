"""One subtask of an operator: its opening, the operators that run functions, and failures."""
