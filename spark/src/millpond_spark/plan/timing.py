"""Time on Spark: the watermark, the batch's processing time, and being called when timers are due.

Four facts about Spark shape this module. ``getCurrentWatermarkMs`` wants a column that carries
the watermark's metadata among the group's input, which the encoded columns do not. Under
``EventTimeTimeout`` Spark drops rows whose column of that kind is below the watermark, though a
function has a right to late rows. A group that gets no row is called by its timeout only. And a
streaming query may not number its rows, unless a subquery seems to do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

import attrs
import pandas as pd
from millpond.functions.timer_service import MIN_TIMESTAMP
from millpond.types.time_types import micros_from_datetime
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import (
    BooleanType,
    NumericType,
    StructField,
)

from millpond_spark.plan.watermarks import WATERMARK
from millpond_spark.session.internals import ROW_NUMBER
from millpond_spark.values.schemas import BATCH_COLUMN, GROUP_COLUMN, LABEL_COLUMN

TimeMode = Literal["event-time", "processing-time"]

TIMEOUTS = {
    None: "EventTimeTimeout",
    "event-time": "EventTimeTimeout",
    "processing-time": "ProcessingTimeTimeout",
}
"""The timeout by which Spark calls subtasks, by time mode.

Without timers none is ever set. But Spark fixes at a query's first start whether its state has a
column for one, and a function may get timers later.
"""

_TIME_COLUMN = "millpond_time"
_FAR_FUTURE = 1 << 62
"""In microseconds, as Spark compares; a timestamp of that time would not fit pandas."""
_WAKE_UP = -1
_ROW_IN_PARTITION = (1 << 33) - 1


def event_times(moments: Iterable[datetime | None]) -> list[int | None]:
    """The event times of rows in ms, from the values of their column."""
    return [None if moment is None else micros_from_datetime(moment) // 1000 for moment in moments]


def time_column() -> Column:
    """A column that gives Spark the watermark and makes no row late."""
    return F.lit(_FAR_FUTURE).cast("bigint").alias(_TIME_COLUMN, metadata={WATERMARK: 0})


def with_wake_ups(
    carried: DataFrame, labels: Sequence[int], batch: Column | None = None
) -> DataFrame:
    """Copies of each partition's first row for all subtasks, which have no key group.

    A subtask that has not run yet, after a rescale or the start from a savepoint, has no timeout
    to be called by, but may have got timers; and by event time Spark does not call it for timers
    of processing time. Whoever has nothing of the kind sleeps on.

    Args:
        carried: the rows as they travel.
        labels: the subtasks' labels.
        batch: the batch's identity, which the copies are to carry.
    """
    first = F.expr(ROW_NUMBER).bitwiseAND(F.lit(_ROW_IN_PARTITION)) == 0
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
    """A row more for each subtask, without a key group: so each has one that tells its label.

    Fillers stand in its columns: a null would make another type of a frame's column of numbers.
    """
    each = F.array(*(F.lit(label) for label in labels))
    parts = {
        GROUP_COLUMN: F.lit(_WAKE_UP),
        LABEL_COLUMN: F.get(each, F.col("id").cast("int")),
    }
    alone = carried.sparkSession.range(0, len(labels), 1, 1).select(
        *(parts.get(field.name, _filler(field)).alias(field.name) for field in carried.schema)
    )
    return carried.union(alone)


def _filler(field: StructField) -> Column:
    filled = isinstance(field.dataType, (NumericType, BooleanType))
    return F.lit(0 if filled else None).cast(field.dataType)


def own_rows(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """A subtask's frames without wake-ups; those that held nothing else are left out."""
    for frame in frames:
        groups = frame[GROUP_COLUMN]
        own = frame[groups != _WAKE_UP] if (groups == _WAKE_UP).any() else frame
        if len(own):
            yield own


@attrs.frozen
class BatchTime:
    """The time of a micro-batch.

    Attributes:
        watermark: in ms, as batches before this one have left it; MIN_TIMESTAMP before the first.
        processing_time: in ms; a replayed batch has the same again.
    """

    watermark: int
    processing_time: int

    @classmethod
    def of(cls, state: GroupState, *, watermarked: bool) -> BatchTime:
        """Read it from Spark, whose watermark is 0 before the first."""
        watermark = state.getCurrentWatermarkMs() if watermarked else 0
        now = state.getCurrentProcessingTimeMs()
        return cls(watermark if watermark > 0 else MIN_TIMESTAMP, now)


NextTimers = tuple[int | None, int | None]
"""When the next event-time and the next processing-time timer are due, in ms."""


def set_timeout(
    state: GroupState, mode: TimeMode | None, time: BatchTime, next_timers: NextTimers
) -> None:
    """Have Spark call the subtask again once its next timer is due.

    Spark calls when the timeout lies before its time, not at it. That is how processing-time
    timers are due; event-time timers are due at their time, hence the 1 ms less for them.
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
    """Whether a subtask that was only woken has nothing to do; its timeout then stays as it was.

    Spark has cleared the timeout for the call.
    """
    by_event, by_clock = next_timers
    if by_event is not None and by_event <= time.watermark:
        return False
    if by_clock is not None and by_clock < time.processing_time:
        return False
    set_timeout(state, mode, time, next_timers)
    return True
