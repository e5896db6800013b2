"""The driver's metrics of a query, per subtask and per operator, for Prometheus and the log."""
