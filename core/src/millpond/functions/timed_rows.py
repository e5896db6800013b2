"""Rows in a sorted map, in the order of their event times and of their arrival."""

from __future__ import annotations

from typing import Any, TypeAlias

from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.state import SortedMapState

TimedRows: TypeAlias = SortedMapState[tuple[int, int], Any]
"""Rows by their event time, and by a number that distinguishes rows of the same time."""


def add_row(rows: TimedRows, time: int, value: Any) -> None:
    """Add an entry behind the entries of the same time.

    Each row has an entry of its own: adding to a list of rows would cost more with each row of this
    time.
    """
    number = 0
    if rows.contains((time, 0)):
        same = rows.range(*time_span(time, time), reverse=True, limit=1)
        number = next(same)[0][1] + 1
    rows.put((time, number), value)


def time_span(first: int, last: int) -> tuple[Any, Any]:
    """Return the bounds of the range of ``TimedRows`` from one time to another, both inclusive.

    The two times may be outside of the times that rows can have.
    """
    start = (min(max(first, MIN_TIMESTAMP), MAX_TIMESTAMP),)
    if last >= MAX_TIMESTAMP:
        return start, None if first <= MAX_TIMESTAMP else start
    return start, (max(last + 1, MIN_TIMESTAMP),)
