"""Millpond on PySpark: ``key_by(df, …).process(function, …)``, or ``operator(df)`` without keys."""

from millpond_spark.api.configure import configure
from millpond_spark.api.keyed_stream import KeyedStream, key_by
from millpond_spark.api.migration import migrate
from millpond_spark.api.operator_output import OperatorOutput
from millpond_spark.api.operator_stream import OperatorStream, operator
from millpond_spark.driver.offline_rescaling import rescale
from millpond_spark.driver.query_checks import several_operators
from millpond_spark.driver.savepoints import create_savepoint
from millpond_spark.driver.source_positions import QueryPositions, SourcePosition
from millpond_spark.metrics.batch_metrics import (
    MetricsListener,
    OperatorMetrics,
    SubtaskMetrics,
    subtask_metrics,
)
from millpond_spark.values.side_outputs import SUBTASK_METRICS

__all__ = [
    "SUBTASK_METRICS",
    "KeyedStream",
    "MetricsListener",
    "OperatorMetrics",
    "OperatorOutput",
    "OperatorStream",
    "QueryPositions",
    "SourcePosition",
    "SubtaskMetrics",
    "configure",
    "create_savepoint",
    "key_by",
    "migrate",
    "operator",
    "rescale",
    "several_operators",
    "subtask_metrics",
]
