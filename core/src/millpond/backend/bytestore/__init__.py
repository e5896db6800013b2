"""The base of backends that keep their state in an ordered key-value store."""
