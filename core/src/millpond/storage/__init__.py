"""Checkpoint storages: write-once files under a root, by relative paths."""
