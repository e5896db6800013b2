"""Time on Spark: watermarks, the batch's processing time, and calls when timers are due.

Spark marks the column with a watermark in the column's metadata. But Parquet files keep this
metadata, so the mark may come from another query. A stream has a watermark only if its plan also
sets one.

Four facts about Spark shape the rest of this module:

* ``getCurrentWatermarkMs`` needs an input column with the mark. The encoded columns have no mark,
  so a column is added.
* Under ``EventTimeTimeout`` Spark drops rows in which the marked column is below the watermark. But
  functions must get late rows too, so the added column has a time in the far future.
* Spark calls a subtask without rows only when the subtask's timeout has passed. So rows are added
  that wake all subtasks.
* A streaming query can number its rows only by a subquery.
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
    """Return whether `df` is a stream with a watermark.

    Over Spark Connect the client has no analyzed plan, so only the columns' metadata counts.
    """
    if not (df.isStreaming and watermarked_columns(df.schema)):
        return False
    return is_connect(df.sparkSession) or _gets_watermark(internals.analyzed_plan(df))


def operator_behind_join(df: DataFrame) -> str:
    """Return the uid of an operator before `df` that follows a join of two streams, or "".

    The watermark behind such a join is lower than the query's. Spark passes it on to the first
    operator only.
    """
    if not df.isStreaming or is_connect(df.sparkSession):
        return ""
    plan = internals.analyzed_plan(df)
    found = internals.before_operator(plan, internals.is_stream_join)
    return "" if found is None else found[1]


def may_hold_rows(df: DataFrame) -> bool:
    """Return whether rows of the stream `df` may come only when the watermark has passed them.

    So does an operator whose input has a watermark, and an outer join of two streams, for rows
    without a match.
    """
    if not df.isStreaming:
        return False
    return _passed_on(df) is not None or (is_watermarked(df) and _follows_outer_join(df))


def passed_watermark(*inputs: DataFrame) -> DataFrame | None:
    """Return a stream of one row per batch, with the watermark of an operator before `inputs`.

    Return None if Spark passes the watermark on itself, because there is no such operator.
    """
    found = map(_passed_on, inputs)
    watermark = next((node for node in found if node is not None), None)
    if watermark is None:
        return None
    return internals.watermarked_row(inputs[0].sparkSession, watermark)


def _passed_on(df: DataFrame) -> Any:
    """Return the step that sets the watermark of an operator before `df`; None if there is none.

    Over Spark Connect a query has only one operator.
    """
    if is_connect(df.sparkSession):
        return None
    found = internals.before_operator(internals.analyzed_plan(df), internals.sets_watermark)
    return None if found is None else found[0]


def _follows_outer_join(df: DataFrame) -> bool:
    """Return whether the rows of `df` come from an outer join of two streams.

    Over Spark Connect the client sees joins of DataFrames, but not joins in SQL text or in views.
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
    """Return the position of the first timestamp column with a watermark, or None.

    If Spark's function ``window`` is applied to such a column, the result is marked too. But it is
    a column of structs, so it does not count.

    Args:
        schema: the columns of the rows.
        call: the user's call, for errors.

    Raises:
        ConfigError: columns have the mark, but none of them is a timestamp column.
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
    """Return whether a step of `plan` sets a watermark.

    Steps before an operator do not count, because the operator's output has no watermark.
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
"""The kind of timeout to request from Spark, by time mode.

A function without timers requests one too. Spark decides at a query's first start whether the
query's state has a column for timeouts, and a later version of the function may have timers.
"""

_TIME_COLUMN = "millpond_time"
_FAR_FUTURE = 1 << 62
"""In microseconds, because pandas has no timestamp that late."""
_WAKE_UP = -1
_ROW_IN_PARTITION = (1 << 33) - 1


def event_times(moments: Iterable[datetime | None]) -> list[int | None]:
    """Return the event times in ms of `moments`, the values of an event-time column."""
    return [None if moment is None else micros_from_datetime(moment) // 1000 for moment in moments]


def time_column() -> Column:
    """Return a column with the mark of a watermark, and with a time in the far future."""
    return F.lit(_FAR_FUTURE).cast("bigint").alias(_TIME_COLUMN, metadata={WATERMARK: 0})


def with_wake_ups(
    carried: DataFrame, labels: Sequence[int], batch: Column | None = None
) -> DataFrame:
    """Add wake-ups to the rows of a batch, so that Spark calls every subtask.

    A wake-up is a copy of the first row of a partition, with -1 as key group. Each partition with
    rows sends one to each subtask. Wake-ups are needed in two cases. After a rescale or a start
    from a savepoint, a subtask may have timers, but no timeout in Spark yet. And under an
    event-time timeout Spark does not call a subtask for its processing-time timers. If a subtask
    has no due timer, it ignores its wake-ups.

    Args:
        carried: the encoded rows.
        labels: for each subtask, the number by which Spark groups its rows.
        batch: a column with the batch identity. If given, the wake-ups have its value in a further
            column.
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


def with_one_wake_up_each(
    carried: DataFrame, labels: Sequence[int], row: DataFrame | None = None
) -> DataFrame:
    """Add one wake-up for each subtask.

    In bounded rows, each partition then knows its subtask. In a wake-up, numbers are 0 and booleans
    false, because a null would change the type of a pandas column. All other values are null.

    Args:
        carried: the encoded rows.
        labels: for each subtask, the number by which Spark groups its rows.
        row: the row to make the wake-ups of; by default a bounded one.
    """
    each = F.explode(F.array(*(F.lit(label) for label in labels))).alias(LABEL_COLUMN)
    known = {GROUP_COLUMN: F.lit(_WAKE_UP), LABEL_COLUMN: F.col(LABEL_COLUMN)}
    columns = []
    for field in carried.schema:
        filled = isinstance(field.dataType, (T.NumericType, T.BooleanType))
        empty = F.lit(0 if filled else None).cast(field.dataType)
        columns.append(known.get(field.name, empty).alias(field.name))
    single = carried.sparkSession.range(0, 1, 1, 1) if row is None else row
    return carried.union(single.select(each).select(*columns))


def own_rows(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield `frames` without wake-ups. Frames that have only wake-ups are left out."""
    for frame in frames:
        groups = frame[GROUP_COLUMN]
        own = frame[groups != _WAKE_UP] if (groups == _WAKE_UP).any() else frame
        if len(own):
            yield own


@attrs.frozen
class BatchTime:
    """The time of a micro-batch.

    Attributes:
        watermark: the watermark in ms, from the source's rows of earlier batches; MIN_TIMESTAMP if
            there is none yet.
        processing_time: the batch's time in ms. If Spark runs the batch again, it has this time
            again.
        before: the watermark in ms before the batch's rows, by default `watermark`. Behind another
            operator it is the watermark of the batch before, because the other operator yields rows
            that it has held back until `watermark`.
        delay: the time in ms by which `watermark` is behind Spark's.
    """

    watermark: int
    processing_time: int
    before: int = attrs.field()
    delay: int = 0

    @before.default
    def _default_before(self) -> int:
        return self.watermark

    @classmethod
    def from_state(cls, state: GroupState, *, watermarked: bool, delay: int = 0) -> BatchTime:
        """Read the times from `state`, Spark's state of a subtask.

        Args:
            state: Spark's state of a subtask.
            watermarked: whether the input has a watermark. Spark's watermark of 0 counts as none.
            delay: the time in ms by which the operator's watermark is behind Spark's.
        """
        watermark = state.getCurrentWatermarkMs() if watermarked else 0
        now = state.getCurrentProcessingTimeMs()
        return cls(watermark - delay if watermark > 0 else MIN_TIMESTAMP, now, delay=delay)


NextTimers = tuple[int | None, int | None]
"""The times in ms of the next event-time timer and of the next processing-time timer, if any."""


def set_timeout(
    state: GroupState, mode: TimeMode | None, time: BatchTime, next_timers: NextTimers
) -> None:
    """Make Spark call the subtask again when its next timer is due.

    Spark calls a subtask when the time is later than the timeout. A processing-time timer fires
    when the time is later than the timer's time. An event-time timer fires already when the
    watermark equals the timer's time, so the timeout for it is 1 ms earlier.

    Args:
        state: Spark's state of the subtask.
        mode: the time domain in which Spark calls subtasks for due timers; None without timers.
        time: the batch's time.
        next_timers: the times of the next timers.
    """
    by_event, by_clock = next_timers
    if mode == "event-time" and by_event is not None:
        state.setTimeoutTimestamp(max(max(by_event - 1, time.watermark) + time.delay, 1))
    elif mode == "processing-time" and by_event is not None:
        state.setTimeoutDuration(1)
    elif mode == "processing-time" and by_clock is not None:
        state.setTimeoutDuration(max(by_clock - time.processing_time, 1))


def sleeps_on(
    state: GroupState, mode: TimeMode | None, time: BatchTime, next_timers: NextTimers
) -> bool:
    """Return whether a subtask without rows has no due timer; if so, set its timeout again.

    Spark clears a subtask's timeout before it calls the subtask. See ``set_timeout`` for the
    arguments.
    """
    by_event, by_clock = next_timers
    if by_event is not None and by_event <= time.watermark:
        return False
    if by_clock is not None and by_clock < time.processing_time:
        return False
    set_timeout(state, mode, time, next_timers)
    return True
