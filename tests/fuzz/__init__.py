"""Mutants of all files that outlive a process, and odd calls: ``python -m tests.fuzz``."""
