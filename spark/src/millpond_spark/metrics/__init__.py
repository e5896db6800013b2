"""Metrics that tasks report to the driver."""
