"""Clocks: the only source of "now", in milliseconds since the epoch; tests can set it."""

from __future__ import annotations

import time
from typing import Protocol

import attrs

from millpond.arguments import INT64, moment_ms, within


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
