"""The worker's part: the life of one task."""
