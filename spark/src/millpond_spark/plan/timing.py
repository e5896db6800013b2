"""Time on Spark: watermarks, the batch's processing time, and calls when timers are due.

Spark marks a column that has a watermark in the column's metadata. The metadata of a schema may
come from another query, as Parquet files keep it. So the plan must set a watermark as well.

Four facts about Spark shape the rest of this module. ``getCurrentWatermarkMs`` needs a column with
the watermark's metadata among the group's input, and the encoded columns have none. Under
``EventTimeTimeout`` Spark drops rows whose column with the watermark's metadata is below the
watermark, but functions must get late rows too. A group without rows is called by its timeout only.
And a streaming query may not number its rows, except by a subquery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

import attrs
import pandas as pd
from millpond.errors import ConfigError
from millpond.functions.timer_service import MIN_TIMESTAMP
from millpond.types.time_types import micros_from_datetime
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupState

from millpond_spark.session import internals
from millpond_spark.session.session import is_connect
from millpond_spark.values.schemas import BATCH_COLUMN, GROUP_COLUMN, LABEL_COLUMN

WATERMARK = "spark.watermarkDelayMs"
"""The key in a column's metadata by which Spark marks the column that has a watermark."""

_MOMENTS = (T.TimestampType, T.TimestampNTZType)


def is_watermarked(df: DataFrame) -> bool:
    """Return whether a stream has a column with a watermark.

    Over Spark Connect the client has no plan, so the metadata decides.
    """
    if not (df.isStreaming and watermarked_columns(df.schema)):
        return False
    return is_connect(df.sparkSession) or _gets_watermark(internals.analyzed_plan(df))


def follows_outer_join(df: DataFrame) -> bool:
    """Return whether a stream's rows come from an outer join of two streams.

    Spark gives the join's rows without a match when the watermark has passed them. Over Spark
    Connect the client sees the joins of DataFrames, but not those in the text of a query or view.
    """
    session = df.sparkSession
    remote = is_connect(session)

    def has_join(node: Any) -> bool:
        if remote:
            here = internals.is_client_outer_stream_join(node, session)
            return here or any(map(has_join, internals.client_inputs(node)))
        return internals.is_outer_stream_join(node) or any(map(has_join, internals.children(node)))

    return has_join(internals.client_plan(df) if remote else internals.analyzed_plan(df))


def watermarked_columns(schema: T.StructType) -> list[int]:
    """Return the positions of the columns that Spark has marked with a watermark."""
    return [at for at, field in enumerate(schema) if WATERMARK in (field.metadata or {})]


def watermark_column(schema: T.StructType, call: str) -> int | None:
    """Return the position of the column of timestamps that has a watermark, or None.

    A column that Spark's function ``window`` makes of such a column has the mark too, but its
    values are structs.

    Args:
        schema: the columns of the rows.
        call: the user's call, for errors.

    Raises:
        ConfigError: only columns of structs have the mark.
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
    """Return whether a plan sets a watermark that reaches its rows.

    The watermark of an operator's input does not reach the operator's output.
    """
    if plan.nodeName() == internals.OPERATOR_NODE:
        return False
    return plan.nodeName() == internals.SETS_WATERMARK or any(
        map(_gets_watermark, internals.children(plan))
    )


TimeMode = Literal["event-time", "processing-time"]

TIMEOUTS = {
    None: "EventTimeTimeout",
    "event-time": "EventTimeTimeout",
    "processing-time": "ProcessingTimeTimeout",
}
"""The name of the timeout that Spark is to use, by time mode.

A function without timers sets no timeout. But Spark decides at a query's first start whether its
state has a column for timeouts, and a later version of the function may have timers.
"""

_TIME_COLUMN = "millpond_time"
_FAR_FUTURE = 1 << 62
"""In microseconds, because pandas has no timestamp that late."""
_WAKE_UP = -1
_ROW_IN_PARTITION = (1 << 33) - 1


def event_times(moments: Iterable[datetime | None]) -> list[int | None]:
    """Return the event times of rows in ms, from the values of their column."""
    return [None if moment is None else micros_from_datetime(moment) // 1000 for moment in moments]


def time_column() -> Column:
    """Return a column that has the watermark's mark and whose value never makes a row late."""
    return F.lit(_FAR_FUTURE).cast("bigint").alias(_TIME_COLUMN, metadata={WATERMARK: 0})


def with_wake_ups(
    carried: DataFrame, labels: Sequence[int], batch: Column | None = None
) -> DataFrame:
    """Add wake-ups to the rows of a batch, so that Spark calls every subtask.

    A wake-up is a copy of a partition's first row without a key group. After a rescale or a start
    from a savepoint a subtask may have timers, but it has no timeout yet by which Spark would call
    it. Under an event-time timeout Spark also does not call a subtask for its processing-time
    timers. A subtask that has no timer due does nothing with its wake-up.

    Args:
        carried: the rows, as carrier frames.
        labels: the subtasks' labels.
        batch: the batch's identity, which the wake-ups have in a column of their own.
    """
    first = F.expr(internals.ROW_NUMBER).bitwiseAND(F.lit(_ROW_IN_PARTITION)) == 0
    own = F.col(LABEL_COLUMN)
    all_of_them = F.array(own, *(F.lit(label) for label in labels))
    exploded = F.posexplode(F.when(first, all_of_them).otherwise(F.array(own)))
    spread = carried.select("*", exploded.alias("millpond_copy", "millpond_to"))
    original = F.col("millpond_copy") == 0
    group = F.when(original, F.col(GROUP_COLUMN)).otherwise(F.lit(_WAKE_UP))
    woken = spread.withColumns({GROUP_COLUMN: group, LABEL_COLUMN: F.col("millpond_to")})
    if batch is not None:
        woken = woken.withColumn(BATCH_COLUMN, F.when(~original, batch))
    return woken.drop("millpond_copy", "millpond_to")


def with_one_wake_up_each(carried: DataFrame, labels: Sequence[int]) -> DataFrame:
    """Add one wake-up for each subtask to bounded rows, so that each partition knows its label.

    Numbers and booleans of a wake-up are 0, as a null would change the type of a frame's column.
    """
    each = F.array(*(F.lit(label) for label in labels))
    known = {GROUP_COLUMN: F.lit(_WAKE_UP), LABEL_COLUMN: F.get(each, F.col("id").cast("int"))}
    columns = []
    for field in carried.schema:
        filled = isinstance(field.dataType, (T.NumericType, T.BooleanType))
        empty = F.lit(0 if filled else None).cast(field.dataType)
        columns.append(known.get(field.name, empty).alias(field.name))
    wake_ups = carried.sparkSession.range(0, len(labels), 1, 1).select(*columns)
    return carried.union(wake_ups)


def own_rows(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield a subtask's frames without wake-ups, leaving out frames without other rows."""
    for frame in frames:
        groups = frame[GROUP_COLUMN]
        own = frame[groups != _WAKE_UP] if (groups == _WAKE_UP).any() else frame
        if len(own):
            yield own


@attrs.frozen
class BatchTime:
    """The time of a micro-batch.

    Attributes:
        watermark: the watermark from the rows of earlier batches, in ms; MIN_TIMESTAMP before the
            first.
        processing_time: the batch's time in ms. A batch that is run again has the same time.
    """

    watermark: int
    processing_time: int

    @classmethod
    def from_state(cls, state: GroupState, *, watermarked: bool) -> BatchTime:
        """Read the time from Spark's state of a subtask; a watermark of 0 counts as none."""
        watermark = state.getCurrentWatermarkMs() if watermarked else 0
        now = state.getCurrentProcessingTimeMs()
        return cls(watermark if watermark > 0 else MIN_TIMESTAMP, now)


NextTimers = tuple[int | None, int | None]
"""When the next event-time and the next processing-time timer are due, in ms."""


def set_timeout(
    state: GroupState, mode: TimeMode | None, time: BatchTime, next_timers: NextTimers
) -> None:
    """Make Spark call the subtask again when its next timer is due.

    Spark calls a subtask once its time is later than the timeout. A processing-time timer fires
    once the time is later than the timer's. An event-time timer fires as soon as the watermark
    equals its time, so its timeout is 1 ms earlier.

    Args:
        state: Spark's state of the subtask.
        mode: by which time Spark calls subtasks; None without timers.
        time: the batch's time.
        next_timers: when the next timers are due.
    """
    by_event, by_clock = next_timers
    if mode == "event-time" and by_event is not None:
        state.setTimeoutTimestamp(max(by_event - 1, time.watermark, 1))
    elif mode == "processing-time" and by_event is not None:
        state.setTimeoutDuration(1)
    elif mode == "processing-time" and by_clock is not None:
        state.setTimeoutDuration(max(by_clock - time.processing_time, 1))


def sleeps_on(
    state: GroupState, mode: TimeMode | None, time: BatchTime, next_timers: NextTimers
) -> bool:
    """Return whether a subtask without rows has nothing to do, and set its timeout again if so.

    Spark clears the timeout of a subtask before it calls the subtask.
    """
    by_event, by_clock = next_timers
    if by_event is not None and by_event <= time.watermark:
        return False
    if by_clock is not None and by_clock < time.processing_time:
        return False
    set_timeout(state, mode, time, next_timers)
    return True
