"""Patterns: sequences of rows that a keyed function looks for."""
