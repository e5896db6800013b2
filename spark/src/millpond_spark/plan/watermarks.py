"""The watermark of a stream that comes to an operator.

Spark marks a column that has a watermark in the column's metadata. The metadata of a schema may be
left over from another query: Parquet files keep it. So the plan must set a watermark as well.
"""

from __future__ import annotations

from typing import Any

from millpond.errors import ConfigError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from millpond_spark.session.internals import (
    OPERATOR_NODE,
    SETS_WATERMARK,
    analyzed_plan,
    children,
    client_inputs,
    client_plan,
    is_client_outer_stream_join,
    is_outer_stream_join,
)
from millpond_spark.session.session import is_connect

WATERMARK = "spark.watermarkDelayMs"
"""The key of Spark's mark in a column's metadata."""

_MOMENTS = (TimestampType, TimestampNTZType)


def is_watermarked(df: DataFrame) -> bool:
    """Return whether a stream has a column with a watermark.

    Over Spark Connect the client has no plan, so the metadata decides.
    """
    if not (df.isStreaming and watermarked_columns(df.schema)):
        return False
    return is_connect(df.sparkSession) or _gets_watermark(analyzed_plan(df))


def follows_outer_join(df: DataFrame) -> bool:
    """Return whether a stream's rows come from an outer join of two streams.

    Spark gives the join's rows without a match when the watermark has passed them. Over Spark
    Connect the client sees the joins of DataFrames, but not those in the text of a query or view.
    """
    session = df.sparkSession
    if is_connect(session):
        return _client_outer_join(client_plan(df), session)
    return _has_outer_join(analyzed_plan(df))


def _has_outer_join(plan: Any) -> bool:
    return is_outer_stream_join(plan) or any(map(_has_outer_join, children(plan)))


def _client_outer_join(plan: Any, session: Any) -> bool:
    if is_client_outer_stream_join(plan, session):
        return True
    return any(_client_outer_join(each, session) for each in client_inputs(plan))


def watermarked_columns(schema: StructType) -> list[int]:
    """Return the positions of the columns that have a watermark, windows included."""
    return [at for at, field in enumerate(schema) if WATERMARK in (field.metadata or {})]


def watermark_column(schema: StructType, call: str) -> int | None:
    """Return the position of the timestamps that have the watermark, or None.

    Two columns may have one name, so the position counts. Spark hands the watermark on to the
    struct that its function ``window`` makes of such a column.

    Raises:
        ConfigError: only such structs have it.
    """
    marked = {at: schema[at] for at in watermarked_columns(schema)}
    moments = (at for at, each in marked.items() if isinstance(each.dataType, _MOMENTS))
    found = next(moments, None)
    if found is None and marked:
        name = next(iter(marked.values())).name
        reason = f"the watermark is that of {name}, which is no column of timestamps: name one"
        reason += f", for instance {name}.end"
        raise ConfigError("event_time", reason, f"{call}(event_time=...)")
    return found


def _gets_watermark(plan: Any) -> bool:
    """Return whether a plan's rows come with a watermark: an operator does not hand it on."""
    if plan.nodeName() == OPERATOR_NODE:
        return False
    return plan.nodeName() == SETS_WATERMARK or any(map(_gets_watermark, children(plan)))
