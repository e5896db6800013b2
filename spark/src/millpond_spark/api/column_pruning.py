"""Which columns an operator needs that reads no more of its rows than it says."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.errors import MillpondError
from pyspark.sql import DataFrame

from millpond_spark.api.short_forms import ProcessOptions
from millpond_spark.plan.column_arguments import Choice, order_choices, time_choice
from millpond_spark.plan.spark_plans import keeps_columns
from millpond_spark.plan.watermarks import watermarked_columns
from millpond_spark.session.session import is_connect
from millpond_spark.values.schemas import told_apart


def needed_columns(
    df: DataFrame, keys: Sequence[Choice], value: str, options: ProcessOptions
) -> list[int] | None:
    """The positions of the columns that are needed, in their order; None where all are to stay.

    All stay where something is computed of columns, for Spark alone knows of which. So do those of
    streams that Spark has joined: its state holds what is read later, and may not change.

    Args:
        df: the rows.
        keys: the columns of the key.
        value: the name of the one column that the function reads.
        options: of the ``process`` call, which name further ones.
    """
    event_time, order_by = options.get("event_time"), options.get("order_by", ())
    try:
        named = [*keys, *order_choices(df, order_by, "process")]
        if event_time is not None:
            named.append(time_choice(df, event_time, "process"))
    except MillpondError:
        return None  # process tells it, after what it finds wrong before
    needed = {df.columns.index(value), *watermarked_columns(df.schema)}
    for choice in named:
        if choice.position is None:
            return None
        needed.add(choice.position)
    if not told_apart(df.columns) or _has_kept_columns(df):
        return None
    return sorted(needed)


def _has_kept_columns(df: DataFrame) -> bool:
    """Whether columns are in the state of Spark's own operators; Spark Connect does not tell."""
    if not df.isStreaming:
        return False
    if is_connect(df.sparkSession):
        return True
    return keeps_columns(df._jdf.queryExecution().analyzed())  # noqa: SLF001 - it says so in no other way
