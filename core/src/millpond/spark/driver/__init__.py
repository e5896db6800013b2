"""The driver's part: an operator's plan, layouts, pointers, savepoints."""
