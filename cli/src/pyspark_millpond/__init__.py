"""Lets Spark find the data source ``millpond`` by its name: it looks for modules ``pyspark_*``."""

from millpond_cli.datasource import MillpondDataSource as DefaultSource

__all__ = ["DefaultSource"]
