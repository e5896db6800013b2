"""Sizing: the figures of a job, calculated from its rows and keys and from measured constants."""
