"""Checkpoint storages: local directories, remote file systems, and memory."""
