"""The session: configure, its settings and their checks."""
