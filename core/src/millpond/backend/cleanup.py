"""Removing expired entries that nobody reads any more.

At each flush a few rows of each state with TTL are looked at, where the last look ended. The
cost is bounded by what the bundle has changed. A pass over the whole state begins only once
something in it can have expired: the oldest stamp that the last pass has seen says when.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from millpond.backend.changes import Change
from millpond.backend.list_encoding import join_cells, split_cells
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.ttl_config import CleanupStrategies
from millpond.untrusted import unreadable

__all__ = ["PROGRESS_BYTES", "Expiry", "Sweep", "SweepFigures", "live_rows"]

_STAMP = struct.Struct(">q")
_NEVER = (1 << 63) - 1
_LONG_AGO = -(1 << 63)
_PROGRESS = struct.Struct(">?qq")
PROGRESS_BYTES = _PROGRESS.size
_AT_LEAST = 1000
"""Rows looked at in a flush that has changed nothing, so that idle states are cleaned too."""

_AT_MOST = 50_000


@attrs.define
class SweepFigures:
    """What the clean-up of one state has done since the backend was opened.

    Attributes:
        visited: rows looked at.
        removed: rows removed; a list from which only some elements went does not count.
        passes: how often the whole state was looked through.
    """

    visited: int = 0
    removed: int = 0
    passes: int = 0


class Expiry:
    """What is left of a stored value at a moment.

    Attributes:
        oldest: the oldest stamp that was seen alive, in ms; None before the first.
    """

    def __init__(self, meta: StateMeta, now: int) -> None:
        assert meta.ttl_ms is not None
        self._name = meta.name
        self._limit = now - meta.ttl_ms
        self._is_list = meta.kind is StateKind.LIST
        self.oldest: int | None = None

    def _live(self, stamp: int) -> bool:
        if stamp <= self._limit:
            return False
        if self.oldest is None or stamp < self.oldest:
            self.oldest = stamp
        return True

    def of_bytes(self, data: bytes) -> bytes | None:
        """The same bytes, those of the live elements of a list, or None where nothing is left."""
        try:
            return self._kept(data)
        except Exception as error:
            raise unreadable("", self._name, b"", error) from error

    def _kept(self, data: bytes) -> bytes | None:
        if not self._is_list:
            return data if self._live(_STAMP.unpack_from(data)[0]) else None
        cells = list(split_cells(data))
        live = [cell for cell in cells if self._live(_STAMP.unpack_from(cell)[0])]
        if len(live) == len(cells):
            return data
        return join_cells(live) if live else None

    def of_object(self, value: Any) -> Any:
        """The same for a stamped object, or a list of them."""
        if not self._is_list:
            return value if self._live(value[1]) else None
        live = [element for element in value if self._live(element[1])]
        if len(live) == len(value):
            return value
        return live or None


class Sweep:
    """The clean-up of one state.

    Args:
        meta: the state.
        strategies: how its descriptor wants it.
        now: the time in ms; nothing is buffered yet.
        fresh: whether nothing is stored yet either, so that nothing can expire for a while.
        step: looks at so many rows and removes what has expired; says how many it has looked
            at, how many it has removed, and whether it has come to the end.
    """

    def __init__(
        self,
        meta: StateMeta,
        strategies: CleanupStrategies,
        now: int,
        step: Callable[[int, Expiry], tuple[int, int, bool]],
        *,
        fresh: bool = False,
    ) -> None:
        self._meta = meta
        self._strategies = strategies
        self._step = step
        self._oldest: int | None = None  # of the pass that is under way
        self._last_oldest = now if fresh else _LONG_AGO  # of the last complete pass
        self._last_flush = now
        self.figures = SweepFigures()

    def _expiry_of(self, stamp: int) -> int:
        return min(stamp + (self._meta.ttl_ms or 0), _NEVER)

    def progress(self) -> bytes:
        """How far the clean-up is, for a store that outlives the process."""
        return _PROGRESS.pack(self._oldest is not None, self._oldest or 0, self._last_oldest)

    def resume(self, progress: bytes) -> None:
        """Go on where another process has stopped, whatever the time to live was there."""
        under_way, oldest, self._last_oldest = _PROGRESS.unpack(progress)
        self._oldest = oldest if under_way else None

    def run(self, changed: int, now: int) -> None:
        """Go on for as many rows as a bundle with so many changed entries allows."""
        if self._oldest is None:
            if now < self._expiry_of(self._last_oldest):
                return
            # Entries that are still buffered will not be seen; they are as old as the bundle.
            self._oldest = self._last_flush
        wanted = self._strategies.entries_per_change * changed
        expiry = Expiry(self._meta, now)
        visited, removed, ended = self._step(min(max(wanted, _AT_LEAST), _AT_MOST), expiry)
        self.figures.visited += visited
        self.figures.removed += removed
        if expiry.oldest is not None:
            self._oldest = min(self._oldest, expiry.oldest)
        if ended:
            self._last_oldest, self._oldest = self._oldest, None
            self.figures.passes += 1

    def flushed(self, now: int) -> None:
        """A bundle ended at this time in ms; what the next one buffers is not older."""
        self._last_flush = now


def live_rows(meta: StateMeta, rows: Iterable[Change], now: int) -> list[Change]:
    """The rows of a state that a full snapshot takes over: none that have expired."""
    if meta.ttl_ms is None:
        return list(rows)
    expiry = Expiry(meta, now)
    kept = ((key, expiry.of_bytes(data or b"")) for key, data in rows)
    return [(key, data) for key, data in kept if data is not None]
