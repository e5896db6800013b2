"""Which columns an operator needs that reads no more of its rows than it says."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from millpond.spark.choosing import Choice, order_choices, time_choice
from millpond.spark.columns import told_apart
from millpond.spark.driver.timing import watermarked_columns
from millpond.spark.short_forms import ProcessOptions

__all__ = ["needed_columns"]


def needed_columns(
    df: DataFrame, keys: Sequence[Choice], value: str, options: ProcessOptions
) -> list[int] | None:
    """The positions of the columns that are needed, in their order; None where all are to stay.

    All stay where something is computed of columns, for Spark alone knows of which.

    Args:
        df: the rows.
        keys: the columns of the key.
        value: the name of the one column that the function reads.
        options: of the ``process`` call, which name further ones.

    Raises:
        ConfigError: there is no such column, as ``process`` would tell.
    """
    event_time, order_by = options.get("event_time"), options.get("order_by", ())
    named = [*keys, *order_choices(df, order_by, "process")]
    if event_time is not None:
        named.append(time_choice(df, event_time, "process"))
    needed = {df.columns.index(value), *watermarked_columns(df.schema)}
    for choice in named:
        if choice.position is None:
            return None
        needed.add(choice.position)
    return sorted(needed) if told_apart(df.columns) else None
