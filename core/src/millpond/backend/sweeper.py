"""Removing expired entries that are not read any more.

At each flush a few rows of each state with TTL are looked at, where the last look ended. The
cost is bounded by what the bundle has changed. A pass over the whole state begins only once
something in it can have expired: the oldest stamp that the last pass has seen says when.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

import attrs

from millpond.backend.expiry import Expiry
from millpond.clock import Clock
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.ttl_config import CleanupStrategies

__all__ = ["PROGRESS_BYTES", "Sweep", "SweepMetrics", "Sweeper"]

_NEVER = (1 << 63) - 1
_LONG_AGO = -(1 << 63)
_PROGRESS = struct.Struct(">?qq")
PROGRESS_BYTES = _PROGRESS.size
_AT_LEAST = 1000
"""Rows looked at in a flush that has changed nothing, so that idle states are cleaned too."""

_AT_MOST = 50_000


class Swept(Protocol):
    """A table, as far as its sweep needs it."""

    def sweep(self, limit: int, expiry: Expiry, /) -> tuple[int, int, bool]:
        """Look at up to ``limit`` rows; ``CellTable.sweep`` says what is returned."""

    def changed_entries(self) -> int:
        """How many entries the bundle has changed."""


@attrs.define
class SweepMetrics:
    """What the clean-up of one state has done since the backend was opened.

    Attributes:
        visited: rows looked at.
        removed: rows removed; a list from which only some elements went does not count.
        passes: how often the whole state was looked through.
    """

    visited: int = 0
    removed: int = 0
    passes: int = 0


class Sweep:
    """The clean-up of one state.

    Args:
        meta: the state.
        strategies: how its descriptor wants it.
        now: the time in ms; nothing is buffered yet.
        table: where the entries are.
        fresh: whether nothing is stored yet either, so that nothing can expire for a while.
    """

    def __init__(
        self,
        meta: StateMeta,
        strategies: CleanupStrategies,
        now: int,
        table: Swept,
        *,
        fresh: bool = False,
    ) -> None:
        self._meta = meta
        self._strategies = strategies
        self._table = table
        self._oldest: int | None = None  # of the pass that is under way
        self._last_oldest = now if fresh else _LONG_AGO  # of the last complete pass
        self._last_flush = now
        self.metrics = SweepMetrics()

    def _expiry_of(self, stamp: int) -> int:
        return min(stamp + (self._meta.ttl_ms or 0), _NEVER)

    def progress(self) -> bytes:
        """How far the clean-up is, for a store that outlives the process."""
        return _PROGRESS.pack(self._oldest is not None, self._oldest or 0, self._last_oldest)

    def resume(self, progress: bytes) -> None:
        """Go on where another process has stopped, whatever the time to live was there."""
        under_way, oldest, self._last_oldest = _PROGRESS.unpack(progress)
        self._oldest = oldest if under_way else None

    def run(self, now: int) -> None:
        """Go on for as many rows as the number of entries that the bundle has changed allows."""
        if self._oldest is None:
            if now < self._expiry_of(self._last_oldest):
                return
            # Entries that are still buffered will not be seen; they are as old as the bundle.
            self._oldest = self._last_flush
        wanted = self._strategies.entries_per_change * self._table.changed_entries()
        expiry = Expiry(self._meta, now)
        visited, removed, ended = self._table.sweep(min(max(wanted, _AT_LEAST), _AT_MOST), expiry)
        self.metrics.visited += visited
        self.metrics.removed += removed
        if expiry.oldest is not None:
            self._oldest = min(self._oldest, expiry.oldest)
        if ended:
            self._last_oldest, self._oldest = self._oldest, None
            self.metrics.passes += 1

    def flushed(self, now: int) -> None:
        """A bundle ended at this time in ms; what the next one buffers is not older."""
        self._last_flush = now


class Sweeper:
    """The clean-up of all states with TTL of a backend."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sweeps: dict[str, Sweep] = {}

    def plan(
        self, meta: StateMeta, strategies: CleanupStrategies | None, table: Swept, *, fresh: bool
    ) -> None:
        """Sweep a state from now on, or not any more.

        Args:
            meta: the state.
            strategies: how its descriptor wants it; None where it has no TTL.
            table: where its entries are.
            fresh: whether nothing is stored yet.
        """
        if strategies is None or not strategies.entries_per_change:
            self._sweeps.pop(meta.name, None)
        else:
            now = self._clock.now_ms
            self._sweeps[meta.name] = Sweep(meta, strategies, now, table, fresh=fresh)

    def sweep_of(self, state: str) -> Sweep | None:
        """The sweep of a state, if it has one."""
        return self._sweeps.get(state)

    def run(self) -> None:
        """Look at some entries of each state; each flush begins with this."""
        if self._sweeps:
            now = self._clock.now_ms
            for sweep in self._sweeps.values():
                sweep.run(now)

    def flushed(self) -> None:
        """Nothing is buffered any more: what is written from now on is not older than now."""
        if self._sweeps:
            now = self._clock.now_ms
            for sweep in self._sweeps.values():
                sweep.flushed(now)

    def progress(self) -> Iterator[tuple[str, bytes]]:
        """How far the clean-up of each state is, for a store that outlives the process."""
        for state, sweep in self._sweeps.items():
            yield state, sweep.progress()

    def metrics(self) -> dict[str, SweepMetrics]:
        """What the clean-up of each state has done since the backend was opened."""
        return {state: attrs.evolve(sweep.metrics) for state, sweep in self._sweeps.items()}

    def removed(self) -> int:
        """How many rows all clean-ups together have removed."""
        return sum(sweep.metrics.removed for sweep in self._sweeps.values())
