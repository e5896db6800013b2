"""Millpond on PySpark: ``key_by(df, …).process(function, …)``."""

from millpond.spark.driver.savepoints import create_savepoint
from millpond.spark.metrics.batch_metrics import SubtaskMetrics, subtask_metrics
from millpond.spark.metrics.listener import MetricsListener, OperatorMetrics
from millpond.spark.session import configure
from millpond.spark.stream import KeyedStream, key_by

__all__ = [
    "KeyedStream",
    "MetricsListener",
    "OperatorMetrics",
    "SubtaskMetrics",
    "configure",
    "create_savepoint",
    "key_by",
    "subtask_metrics",
]
