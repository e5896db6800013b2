"""The command `millpond`: tools for jobs, checkpoints and savepoints."""
