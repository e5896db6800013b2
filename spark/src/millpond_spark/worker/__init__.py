"""A task: the runner, the source of its backend, and local copies."""
