"""Contract tests that every state backend of Millpond must pass."""
