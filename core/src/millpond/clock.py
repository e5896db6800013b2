"""Clocks: the only source of "now", in milliseconds since the epoch; tests can set it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import attrs

from millpond.arguments import INT64, moment_ms, within
from millpond.errors import MillpondError


class Clock(Protocol):
    """A source of the processing time.

    The time is an attribute because a state with TTL reads it twice for each row. If the clock is
    fixed during a batch, a read takes 2 ns; a method call would take 21.
    """

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The wall clock of this machine."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000


@attrs.define
class ManualClock:
    """A clock that changes only when it is set.

    Attributes:
        now_ms: the current time in milliseconds.
    """

    now_ms: int = attrs.field(default=0, validator=within(*INT64))

    def advance(self, ms: int) -> None:
        """Add ``ms`` milliseconds to the time; ``ms`` may be negative."""
        self.now_ms += moment_ms("ms", ms)

    def set(self, ms: int) -> None:
        """Set the time to ``ms``, in milliseconds since the epoch."""
        self.now_ms = moment_ms("ms", ms)


class Timed(Protocol):
    """An object with an event time, such as the context of a row."""

    @property
    def timestamp(self) -> int | None:
        """The event time in ms, or None."""
        ...


@attrs.frozen
class NoRow:
    """The substitute for a row if no row is being processed."""

    timestamp: int | None = None


@attrs.define
class EventTime:
    """The event time of a subtask, by which the states with ``TtlTime.EVENT_TIME`` expire.

    Attributes:
        now_ms: the watermark, or the time of the event-time timer that fires, in ms; -2**63 before
            the first watermark.
        row: the object that has the event time of the current row.
        refusal: a function that returns the error for using event time; None if it can be used.
    """

    now_ms: int = INT64[0]
    row: Timed = NoRow()
    refusal: Callable[[], MillpondError] | None = None

    def advance(self, ms: int) -> None:
        """Raise the time to ``ms``.

        Ignore an earlier time, and 2**63 - 1, the watermark after the last row of input that ends:
        no time has passed then.
        """
        if self.now_ms < ms < INT64[1]:
            self.now_ms = ms

    def stamp_ms(self, clock: Clock) -> int:
        """Return the timestamp of an entry that is written now.

        This is the event time of the current row, or the watermark if it is later. If there is
        neither, it is the time of ``clock``.
        """
        row = self.row.timestamp
        latest = self.now_ms if row is None or row < self.now_ms else row
        return clock.now_ms if latest == INT64[0] else latest
