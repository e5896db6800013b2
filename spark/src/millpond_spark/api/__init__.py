"""The calls of users: key_by, operator, process, connect and window."""
