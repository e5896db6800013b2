"""Checkpoint storages: local, remote and in memory."""
