"""Millpond on PySpark: ``key_by(df, …).process(function, …)``."""

from millpond.spark.figures import SubtaskFigures, subtask_figures
from millpond.spark.metrics import MetricsListener, OperatorFigures
from millpond.spark.savepoints import create_savepoint
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
