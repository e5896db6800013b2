"""Millpond on PySpark: ``key_by(df, …).process(function, …)``, or ``operator(df)`` without keys."""

from millpond.spark.driver.rescaling import rescale
from millpond.spark.driver.savepoints import create_savepoint
from millpond.spark.driver.several_operators import several_operators
from millpond.spark.keyless import OperatorStream, operator
from millpond.spark.metrics.batch_metrics import SubtaskMetrics, subtask_metrics
from millpond.spark.metrics.listener import MetricsListener, OperatorMetrics
from millpond.spark.operator_output import OperatorOutput
from millpond.spark.session import configure
from millpond.spark.stream import KeyedStream, key_by

__all__ = [
    "KeyedStream",
    "MetricsListener",
    "OperatorMetrics",
    "OperatorOutput",
    "OperatorStream",
    "SubtaskMetrics",
    "configure",
    "create_savepoint",
    "key_by",
    "operator",
    "rescale",
    "several_operators",
    "subtask_metrics",
]
