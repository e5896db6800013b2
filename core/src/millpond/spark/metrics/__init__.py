"""Metrics of batches: put together on the worker, read and summed on the driver."""
