"""The base class of backends that store state in an ordered key-value store."""
