"""Mutants of all files that outlive a process, and calls with odd arguments: ``python -m tests.fuzz``."""
