"""The module in which Spark finds the data source ``millpond``, as Spark imports ``pyspark_*``."""

from millpond_cli.datasource import MillpondDataSource as DefaultSource

__all__ = ["DefaultSource"]
