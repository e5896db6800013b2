"""The windows of the last row, for the next rows of its key to be added to them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.functions.timer_service import TimerService
from millpond.functions.windows.assigners import WindowAssigner
from millpond.functions.windows.own_results import is_ours
from millpond.functions.windows.trigger_base import Trigger
from millpond.functions.windows.triggers import EventTimeTrigger
from millpond.functions.windows.window import TimeWindow

__all__ = ["SameWindows"]

_NO_KEY: Any = object()


class SameWindows:
    """Where the last row went, as long as a further row of its key would go there, too.

    Rows come sorted by key, so many fall into the windows of the row before. Nothing is due in
    these, and their timers are set: the row is added to them, and that is all that the long way
    would lead to (order lines in windows of an hour: 2.9 µs a row instead of 4.3; sliding ones 3.7
    instead of 7, sessions 4.4 instead of 7.4).

    So it is only for event time, where both the assigner and the trigger are Millpond's own: what
    users write may look at each element.

    Args:
        assigner: of the windows.
        trigger: theirs.
        timers: tells the watermark.

    Attributes:
        usable: whether any window may be noted.
    """

    def __init__(self, assigner: WindowAssigner, trigger: Trigger, timers: TimerService) -> None:
        self._assigner = assigner
        self._timers = timers
        by_time = assigner.is_event_time and type(trigger) is EventTimeTrigger
        self.usable = by_time and is_ours(assigner)
        self._key: Any = _NO_KEY
        self._first = self._end = 0
        self._namespaces: Sequence[TimeWindow] = ()

    def forget(self) -> None:
        """The next row takes the long way."""
        self._key = _NO_KEY

    def of(self, key: Any, timestamp: int | None) -> Sequence[TimeWindow]:
        """The namespaces of the windows that a row goes to; none where that is not known."""
        if key is self._key and timestamp is not None and self._first <= timestamp < self._end:
            return self._namespaces
        return ()

    def note(
        self,
        key: Any,
        timestamp: int,
        windows: Sequence[TimeWindow],
        namespaces: Sequence[TimeWindow],
    ) -> None:
        """Note where a row has gone: to windows, as they are now, whose state lies there.

        ``key`` is that very object as long as it is the current key.
        """
        # Once one of them is due, its timer has been called for, which has this forgotten.
        if min(map(TimeWindow.max_timestamp, windows)) > self._timers.current_watermark():
            self._first, self._end = self._assigner._moments_alike(  # noqa: SLF001 - our own
                timestamp, windows
            )
            self._key, self._namespaces = key, namespaces
