"""Metrics of queries in the driver: of subtasks and operators, for Prometheus and for the log."""
