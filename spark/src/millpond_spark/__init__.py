"""Millpond on PySpark: ``key_by(df, …).process(function, …)``, or ``operator(df)`` without keys."""

from millpond_spark.api.configure import configure
from millpond_spark.api.keyed_stream import KeyedStream, key_by
from millpond_spark.api.operator_dataframe import OperatorOutput
from millpond_spark.api.operator_stream import OperatorStream, operator
from millpond_spark.driver.rescaling import rescale
from millpond_spark.driver.savepoints import create_savepoint
from millpond_spark.driver.several_operators import several_operators
from millpond_spark.metrics.batch_metrics import SubtaskMetrics, subtask_metrics
from millpond_spark.metrics.listener import MetricsListener, OperatorMetrics

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
