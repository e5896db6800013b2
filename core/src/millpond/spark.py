"""``millpond.spark``: Millpond on PySpark, from the distribution ``millpond-spark``."""

try:
    from millpond_spark import (
        SUBTASK_METRICS,
        KeyedStream,
        MetricsListener,
        OperatorMetrics,
        OperatorOutput,
        OperatorStream,
        QueryPositions,
        SourcePosition,
        SubtaskMetrics,
        configure,
        create_savepoint,
        key_by,
        migrate,
        operator,
        rescale,
        several_operators,
        subtask_metrics,
    )
except ModuleNotFoundError as error:
    if error.name != "millpond_spark":
        raise
    message = "millpond.spark needs the distribution millpond-spark: pip install 'millpond[spark]'"
    raise ModuleNotFoundError(message, name="millpond_spark") from None

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
