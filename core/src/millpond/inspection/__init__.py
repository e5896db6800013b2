"""Stored operators and checkpoint directories, read without a running job."""
