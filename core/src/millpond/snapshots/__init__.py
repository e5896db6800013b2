"""Snapshots: strategies, files, handles and restore."""
