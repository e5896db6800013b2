"""Idle inputs: a watermark that follows the clock while a subtask gets no rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Self

import attrs

from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.functions.windows.window import milliseconds


@attrs.define
class Idleness:
    """Advances the watermark of a subtask that has had no row for some time.

    From then on, event time passes as fast as the clock, beginning with the highest event time of
    the subtask's rows.

    Attributes:
        timeout: the time without rows in ms after which the subtask is idle.
        last_row: the processing time in ms of the last row; None without one.
        highest: the highest event time in ms so far; MIN_TIMESTAMP without one.
    """

    timeout: int
    last_row: int | None = None
    highest: int = MIN_TIMESTAMP

    @classmethod
    def from_argument(cls, timeout: timedelta | int | None, place: str) -> Self | None:
        """Return the idleness for the argument ``idle_timeout``; None without a timeout.

        Raises:
            ConfigError: ``timeout`` is not a positive length of time.
        """
        if timeout is None:
            return None
        return cls(milliseconds(timeout, "idle_timeout", least=1, place=place))

    def noted(self, rows: Iterable[Any], now: int) -> Iterator[Any]:
        """Yield ``rows``, whose last field is the event time, and note that they have come.

        Args:
            rows: the rows.
            now: the processing time in ms.
        """
        for row in rows:
            self.note(row[-1], now)
            yield row

    def note(self, highest: int | None, now: int) -> None:
        """Note rows that come at the time ``now``; ``highest`` is their highest event time."""
        self.last_row = now
        if highest is not None and highest > self.highest:
            self.highest = highest

    def watermark(self, now: int) -> int:
        """Return the watermark at the processing time ``now``.

        It is MIN_TIMESTAMP if the subtask is not idle, or has had no row with an event time.
        """
        if self.last_row is None or self.highest == MIN_TIMESTAMP:
            return MIN_TIMESTAMP
        idle = now - self.last_row - self.timeout
        return MIN_TIMESTAMP if idle < 0 else min(self.highest + idle, MAX_TIMESTAMP)
