"""Clocks: the only source of "now", in milliseconds since the epoch, so that tests set the time."""

from __future__ import annotations

import time
from typing import Protocol

import attrs

from millpond.arguments import INT64, moment_ms, within


class Clock(Protocol):
    """Anything that tells the processing time.

    By an attribute, since a state with TTL asks twice for each row: on a clock that stands still
    during a batch it costs 2 ns, a method would cost 21.
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
    """A clock that stands still until it is moved.

    Attributes:
        now_ms: the milliseconds that were set last.
    """

    now_ms: int = attrs.field(default=0, validator=within(*INT64))

    def advance(self, ms: int) -> None:
        """Move by so many milliseconds; a negative distance is a clock that jumps back."""
        self.now_ms += moment_ms("ms", ms)

    def set(self, ms: int) -> None:
        """Name the moment, in milliseconds since the epoch."""
        self.now_ms = moment_ms("ms", ms)
