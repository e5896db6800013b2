"""Millpond on PySpark: ``key_by(df, …).process(function, …)``."""

from millpond.spark.driver.savepoints import create_savepoint
from millpond.spark.metrics.batch_metrics import SubtaskFigures, subtask_figures
from millpond.spark.metrics.listener import MetricsListener, OperatorFigures
from millpond.spark.session import configure
from millpond.spark.stream import KeyedStream, key_by

__all__ = [
    "KeyedStream",
    "MetricsListener",
    "OperatorFigures",
    "SubtaskFigures",
    "configure",
    "create_savepoint",
    "key_by",
    "subtask_figures",
]
