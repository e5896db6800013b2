"""The sweep of expired entries: each flush visits some rows of each state with TTL."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

import attrs

from millpond.clock import Clock
from millpond.spi.portable_rows import Expiry
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.expiry_rule import last_expired
from millpond.state.ttl.ttl_config import CleanupStrategies

_LONG_AGO = -(1 << 63)
_PROGRESS = struct.Struct(">?qq")
PROGRESS_BYTES = _PROGRESS.size
_AT_LEAST = 1000
"""Rows that a flush without changes visits, so that idle states are cleaned too."""

_AT_MOST = 50_000


class Swept(Protocol):
    """The part of a table that its sweep needs."""

    def sweep(self, limit: int, expiry: Expiry, /) -> tuple[int, int, bool]:
        """Visit up to ``limit`` rows; see ``CellTable.sweep`` for the result."""

    def changed_entries(self) -> int:
        """Return the number of entries that the bundle has changed."""


@attrs.define
class SweepMetrics:
    """The work of one state's clean-up since the backend was opened.

    Attributes:
        visited: rows visited.
        removed: rows removed; a list that lost only some elements does not count.
        passes: completed passes over the whole state.
    """

    visited: int = 0
    removed: int = 0
    passes: int = 0


class Sweep:
    """The clean-up of one state.

    Args:
        meta: the state.
        strategies: the clean-up strategies of its descriptor.
        now: the time in ms; nothing is buffered yet.
        table: the table of the entries.
        fresh: whether nothing is stored yet either, so that nothing can expire for a while.

    Attributes:
        metrics: the work since the backend was opened.
        last_flush: the time in ms at which the last bundle ended; buffered entries are younger.
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
        self._oldest: int | None = None  # of the current pass
        self._last_oldest = now if fresh else _LONG_AGO  # of the last complete pass
        self.last_flush = now
        self.metrics = SweepMetrics()

    def progress(self) -> bytes:
        """Return the progress of the clean-up, for a store that outlives the process."""
        return _PROGRESS.pack(self._oldest is not None, self._oldest or 0, self._last_oldest)

    def resume(self, progress: bytes) -> None:
        """Continue another process's clean-up, even if its time to live was different."""
        under_way, oldest, self._last_oldest = _PROGRESS.unpack(progress)
        self._oldest = oldest if under_way else None

    def run(self, now: int) -> None:
        """Visit more rows of the state: the more entries the bundle has changed, the more rows."""
        if self._oldest is None:
            if self._last_oldest > last_expired(self._meta.ttl_ms or 0, now):
                return
            # The pass will not see entries still in the buffer; they are as old as the bundle.
            self._oldest = self.last_flush
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


class Sweeper:
    """The clean-up of all states with TTL of a backend."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sweeps: dict[str, Sweep] = {}

    def plan(
        self, meta: StateMeta, strategies: CleanupStrategies | None, table: Swept, *, fresh: bool
    ) -> None:
        """Start or stop sweeping a state.

        Args:
            meta: the state.
            strategies: the clean-up strategies of its descriptor; None if it has no TTL.
            table: the table of its entries.
            fresh: whether nothing is stored yet.
        """
        if strategies is None or not strategies.entries_per_change:
            self._sweeps.pop(meta.name, None)
        else:
            now = self._clock.now_ms
            self._sweeps[meta.name] = Sweep(meta, strategies, now, table, fresh=fresh)

    def sweep_of(self, state: str) -> Sweep | None:
        """Return the sweep of a state, if it has one."""
        return self._sweeps.get(state)

    def run(self) -> None:
        """Visit some entries of each state; each flush begins with this."""
        if self._sweeps:
            now = self._clock.now_ms
            for sweep in self._sweeps.values():
                sweep.run(now)

    def flushed(self) -> None:
        """Note that the buffer is empty: entries that it gets later have later timestamps."""
        if self._sweeps:
            now = self._clock.now_ms
            for sweep in self._sweeps.values():
                sweep.last_flush = now

    def progress(self) -> Iterator[tuple[str, bytes]]:
        """Iterate over the progress of each state, for a store that outlives the process."""
        for state, sweep in self._sweeps.items():
            yield state, sweep.progress()

    def metrics(self) -> dict[str, SweepMetrics]:
        """Return the work of each state's clean-up since the backend was opened."""
        return {state: attrs.evolve(sweep.metrics) for state, sweep in self._sweeps.items()}

    def removed(self) -> int:
        """Return the number of rows that all clean-ups have removed."""
        return sum(sweep.metrics.removed for sweep in self._sweeps.values())
