"""One subtask's life: its opening, the operators that run a function, and failures."""
