"""The sweep, which removes expired entries: each flush visits some rows of a state with TTL."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs

from millpond.spi.portable_rows import Expiry
from millpond.spi.tables import CellTable, MapTable
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.expiry_rule import last_expired
from millpond.state.ttl.ttl_config import CleanupStrategies
from millpond.state.ttl.ttl_times import TtlTimes

_LONG_AGO = -(1 << 63)
_PROGRESS = struct.Struct(">?qq")
PROGRESS_BYTES = _PROGRESS.size
_AT_LEAST = 1000
"""The minimum number of rows that a flush visits, so that idle states are cleaned up too."""

_AT_MOST = 50_000


@attrs.define
class SweepMetrics:
    """The work of the sweep of one state since the backend was opened.

    Attributes:
        visited: the number of visited rows.
        removed: the number of removed rows. A list that lost only some elements does not count.
        passes: the number of complete passes over the state.
    """

    visited: int = 0
    removed: int = 0
    passes: int = 0


class Sweep:
    """The sweep of one state, which removes its expired entries.

    A pass visits all rows of the state in the course of several flushes. After a pass, the next
    pass waits until the oldest remaining entry has expired.

    Args:
        meta: the description of the state.
        strategies: the clean-up strategies in the state's descriptor.
        times: the time of the state. At this time nothing is buffered.
        table: the table of the state's entries.
        fresh: whether nothing is stored either, so that nothing can expire for a while.

    Attributes:
        metrics: the work since the backend was opened.
        last_flush: the time of the last flush in ms. Buffered entries are younger, or noted in
            `times`.
    """

    def __init__(
        self,
        meta: StateMeta,
        strategies: CleanupStrategies,
        times: TtlTimes,
        table: CellTable | MapTable,
        *,
        fresh: bool = False,
    ) -> None:
        self._meta = meta
        self._strategies = strategies
        self._times = times
        self._table = table
        self._oldest: int | None = None  # the oldest timestamp in the current pass
        self.last_flush = times.lower_bound()
        # The oldest timestamp of the last complete pass, and of entries that were written since.
        self._last_oldest = self.last_flush if fresh else _LONG_AGO
        self.metrics = SweepMetrics()

    def progress(self) -> bytes:
        """Return the progress of the sweep as bytes, for a store that survives the process."""
        return _PROGRESS.pack(self._oldest is not None, self._oldest or 0, self._last_oldest)

    def resume(self, progress: bytes) -> None:
        """Continue the sweep of another process."""
        under_way, oldest, self._last_oldest = _PROGRESS.unpack(progress)
        self._oldest = oldest if under_way else None

    def run(self) -> None:
        """Visit more rows of the state: the more entries have changed, the more rows."""
        now, noted = self._times.reads.now_ms, self._times.take_oldest()
        if self._oldest is None:
            self._last_oldest = min(self._last_oldest, noted)
            if self._last_oldest > last_expired(self._meta.ttl_ms or 0, now):
                return
            # The pass does not see buffered entries, but they are not older than the last flush.
            self._oldest = self.last_flush
        self._oldest = min(self._oldest, noted)
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

    def flushed(self) -> None:
        """Note that the buffer is empty. Entries that are written later have later timestamps."""
        self.last_flush = self._times.lower_bound()


class Sweeper:
    """The sweeps of all states of a backend that have a TTL."""

    def __init__(self) -> None:
        self._sweeps: dict[str, Sweep] = {}

    def plan(
        self,
        meta: StateMeta,
        strategies: CleanupStrategies | None,
        times: TtlTimes | None,
        table: CellTable | MapTable,
        *,
        fresh: bool,
    ) -> None:
        """Start or stop the sweep of a state.

        Args:
            meta: the description of the state.
            strategies: the clean-up strategies in the state's descriptor; None if it has no TTL.
            times: the time of the state; None if it has no TTL.
            table: the table of the state's entries.
            fresh: whether nothing is stored yet.
        """
        if strategies is None or times is None or not strategies.entries_per_change:
            self._sweeps.pop(meta.name, None)
        else:
            self._sweeps[meta.name] = Sweep(meta, strategies, times, table, fresh=fresh)

    def sweep_of(self, state: str) -> Sweep | None:
        """Return the sweep of the state `state`, or None if it has none."""
        return self._sweeps.get(state)

    def run(self) -> None:
        """Visit some entries of each state. Each flush begins with this call."""
        for sweep in self._sweeps.values():
            sweep.run()

    def flushed(self) -> None:
        """Note that the buffer is empty."""
        for sweep in self._sweeps.values():
            sweep.flushed()

    def progress(self) -> Iterator[tuple[str, bytes]]:
        """Iterate over the progress of each state by name, for stores that survive the process."""
        for state, sweep in self._sweeps.items():
            yield state, sweep.progress()

    def metrics(self) -> dict[str, SweepMetrics]:
        """Return the work of the sweep of each state."""
        return {state: attrs.evolve(sweep.metrics) for state, sweep in self._sweeps.items()}

    def removed(self) -> int:
        """Return the number of rows that were removed in all states."""
        return sum(sweep.metrics.removed for sweep in self._sweeps.values())
