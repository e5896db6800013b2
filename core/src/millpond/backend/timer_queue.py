"""Timers, which are a set of (timestamp, key, namespace) in the order of time.

Timers are part of the keyed state. The row of a timer consists of the key group, the timestamp (8
bytes that sort as the numbers do), the key and the namespace, and has no value. So the due timers
of a key group are adjacent. Each backend stores the rows in its own way (see ``TimerRows``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from typing_extensions import override

from millpond.arguments import INT64
from millpond.backend.states.raw_states import PreparedNamespaces
from millpond.errors import EndlessTimersError, StateTypeError, brief
from millpond.safe_decoding import unreadable
from millpond.spi.keys import CurrentKey, KeyLayout
from millpond.spi.portable_rows import Change
from millpond.spi.tables import TIMESTAMP_BYTES, TimerRows, timestamp_bytes, timestamp_from
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec, SerializerSnapshot
from millpond.types.foreign_scalars import is_missing, python_scalar

_LONGEST_CHAIN = 1_000_000
"""The maximum length of a chain of due timers, in which each timer sets the next one.

This is enough for a timer every minute during almost two years.
"""
_WORTH_COMPACTING = 64
"""The number of rows up to which the heap in memory is not compacted."""

_STATE_PREFIX = "_millpond_timers_"


def timer_state(domain: str) -> str:
    """Return the name of a time domain's timers in snapshots."""
    return _STATE_PREFIX + domain


def timer_meta(domain: str, namespaces: KeyCodec) -> StateMeta:
    """Return the description of a time domain's timers in snapshots."""
    return StateMeta(
        name=timer_state(domain),
        kind=StateKind.TIMER,
        namespace=namespaces.snapshot(),
        value=SerializerSnapshot("timer"),
    )


@attrs.frozen
class Timer:
    """A timer that is due."""

    timestamp: int
    key: Any
    namespace: Any
    key_group: int


class _Round:
    """One iteration over due timers, including timers that are set or deleted during the iteration.

    ``alive`` contains exactly the rows that are set and not yet yielded. A row that is in
    ``firing`` but not in ``alive`` was deleted. If the row was set again, ``firing`` contains the
    row twice.

    Args:
        due: the timestamps and rows.
        limit: the largest timestamp of new timers that belong to the iteration; None if no new
            timers do.

    Attributes:
        alive: for each row, the length of the chain of timers that ends with it.
        chain: the length of the chain of the timer that fires now.
    """

    def __init__(self, due: list[tuple[int, bytes]], limit: int | None) -> None:
        self._limit = limit
        self.firing = due
        self.alive = {row: 0 for _, row in due}
        self.chain = 0
        heapq.heapify(due)

    def add(self, timestamp: int, row: bytes) -> None:
        """Note that a timer was set."""
        if self._limit is not None and timestamp <= self._limit and row not in self.alive:
            if self.chain >= _LONGEST_CHAIN:
                raise EndlessTimersError(timestamp, _LONGEST_CHAIN)
            self.alive[row] = self.chain + 1
            heapq.heappush(self.firing, (timestamp, row))


class TimerQueue:
    """The timers of one time domain. Methods set and delete timers of the current key."""

    def __init__(self, current: CurrentKey, namespaces: KeyCodec, rows: TimerRows) -> None:
        self._current = current
        self._namespaces = namespaces
        self._prepared = PreparedNamespaces(
            namespaces, lambda namespace: namespaces.encode(namespaces.check(namespace))
        )
        self._rows = rows
        self._round: _Round | None = None
        self._key: Any = None  # the key whose encoded form is cached
        self._group: int | None = None
        self._prefix = self._encoded = b""

    def register(self, timestamp: int, namespace: Any) -> None:
        """Set a timer for the current key, unless it is set already."""
        row = self._row(timestamp, namespace)
        self._rows.add(row)
        if self._round is not None:
            self._round.add(timestamp, row)

    def delete(self, timestamp: int, namespace: Any) -> None:
        """Delete a timer of the current key if it is set."""
        row = self._row(timestamp, namespace)
        self._rows.discard(row)
        if self._round is not None:
            self._round.alive.pop(row, None)

    def _row(self, timestamp: int, namespace: Any) -> bytes:
        if type(timestamp) is not int and not is_missing(timestamp):
            timestamp = python_scalar(timestamp)  # a NumPy integer
        if type(timestamp) is not int:
            raise StateTypeError("a timestamp in ms as an int", brief(timestamp))
        if not INT64[0] <= timestamp <= INT64[1]:
            raise StateTypeError("a timestamp of 64 bits", brief(timestamp))
        current = self._current
        if current.key is not self._key or current.key_group != self._group:
            self._encode_key()
        moment = timestamp_bytes(timestamp)
        return b"".join((self._prefix, moment, self._encoded, self._prepared.prepared(namespace)))

    def _encode_key(self) -> None:
        """Encode the current key and cache the result for all timers of the key."""
        current = self._current
        group, self._encoded = current.encoded()
        self._prefix = current.layout.group_prefix(group)
        if current.codec.exact:  # other keys may be mutable and selected again after a change
            self._key, self._group = current.key, group

    def namespace_bytes(self, namespace: Any) -> bytes:
        """Return a namespace in the form that rows contain."""
        encoded: bytes = self._prepared.prepared(namespace)
        return encoded

    def due(self, timestamp: int) -> Iterator[Timer]:
        """Iterate over the timers up to `timestamp` in order, and delete each before yielding it.

        Timers that are set or deleted during the iteration are taken into account. If another call
        of this method starts an iteration, this iteration ends. Its remaining timers are still set.
        """
        self._current.require_open()
        yield from self._fire(self._rows.until(timestamp), timestamp)

    def take_all(self) -> Iterator[Timer]:
        """Iterate over all timers that are set now, in order, and delete each before it is yielded.

        Timers that are set during the iteration are not yielded, and neither are deleted timers.
        """
        self._current.require_open()
        yield from self._fire(self._rows.until(INT64[1]), None)

    def _fire(self, rows: list[bytes], limit: int | None) -> Iterator[Timer]:
        mine = self._round = _Round([(self._timestamp(row), row) for row in rows], limit)
        try:
            while mine.firing and self._round is mine:
                when, row = heapq.heappop(mine.firing)
                if row in mine.alive:
                    mine.chain = mine.alive.pop(row)
                    self._rows.discard(row)
                    yield self._timer(when, row)
        finally:
            if self._round is mine:
                self._round = None

    def earliest(self) -> int | None:
        """Return the smallest timestamp of all timers, or None if there are no timers."""
        self._current.require_open()
        return self._rows.earliest()

    def _timestamp(self, row: bytes) -> int:
        start = self._current.layout.group_bytes
        return timestamp_from(row[start : start + TIMESTAMP_BYTES])

    def _timer(self, timestamp: int, row: bytes) -> Timer:
        current = self._current
        try:
            found = current.layout.parse(row, current.codec, self._namespaces, TIMESTAMP_BYTES)
        except Exception as error:
            raise unreadable(current.operator.label, "timers", row, error) from error
        return Timer(timestamp, found.key, found.namespace, current.layout.group_of(row))


class MemoryTimerRows(TimerRows):
    """Timer rows in memory: a set of rows, and a heap that may still contain removed rows."""

    def __init__(self, layout: KeyLayout, rows: Iterable[bytes], *, track_changes: bool) -> None:
        self._layout = layout
        self._rows = set(rows)
        self._heap = [self._entry(row) for row in self._rows]
        heapq.heapify(self._heap)
        self.changed: set[bytes] | None = set() if track_changes else None

    def __len__(self) -> int:
        return len(self._rows)

    def _entry(self, row: bytes) -> tuple[bytes, bytes]:
        start = self._layout.group_bytes
        return row[start : start + TIMESTAMP_BYTES], row

    @override
    def add(self, row: bytes) -> None:
        if row not in self._rows:
            self._rows.add(row)
            heapq.heappush(self._heap, self._entry(row))
            self._note(row)

    @override
    def discard(self, row: bytes) -> None:
        if row in self._rows:
            self._rows.discard(row)
            self._note(row)
            self._compact()

    def _compact(self) -> None:
        """Rebuild the heap if most rows in it were removed."""
        if len(self._heap) > max(_WORTH_COMPACTING, 3 * len(self._rows)):
            self._heap = [self._entry(row) for row in self._rows]
            heapq.heapify(self._heap)

    def _note(self, row: bytes) -> None:
        if self.changed is not None:
            self.changed.add(row)

    @override
    def until(self, timestamp: int) -> list[bytes]:
        """Return the rows up to `timestamp`. They remain in the heap until they are removed."""
        limit = timestamp_bytes(timestamp)
        found = set()
        while self._heap and self._heap[0][0] <= limit:
            entry = heapq.heappop(self._heap)
            if entry[1] in self._rows:
                found.add(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [row for _, row in found]

    @override
    def earliest(self) -> int | None:
        while self._heap and self._heap[0][1] not in self._rows:
            heapq.heappop(self._heap)
        if not self._heap:
            return None
        return timestamp_from(self._heap[0][0])

    def clear_all(self) -> None:
        """Remove all rows without calling the change listeners."""
        self._rows.clear()
        self._heap.clear()

    def load(self, key: bytes, value: bytes | None) -> None:
        """Add a portable row, or remove it if `value` is None."""
        if value is None:
            self._rows.discard(key)
            self._compact()
        elif key not in self._rows:
            self._rows.add(key)
            heapq.heappush(self._heap, self._entry(key))

    def changes(self) -> list[Change]:
        """Return the changed rows, sorted."""
        return [(row, b"" if row in self._rows else None) for row in sorted(self.changed or ())]

    def flushed(self) -> None:
        """Forget the changes, because the listeners have been called with them."""
        self.changed = set()

    def rows(self, frozen: dict[bytes, list[Change]], group: int) -> list[Change]:
        """Return the rows of a key group in `frozen`, the result of ``freeze``."""
        return frozen.get(self._layout.group_prefix(group), [])

    def thaw(self) -> None:
        """Do nothing, because the result of ``freeze`` is a copy."""

    def count(self) -> int:
        """Return 0, because timers do not count as entries of a state."""
        return 0

    def freeze(self) -> dict[bytes, list[Change]]:
        """Return a copy of all rows, by the prefix of the key group."""
        frozen: dict[bytes, list[Change]] = {}
        for row in sorted(self._rows):
            frozen.setdefault(row[: self._layout.group_bytes], []).append((row, b""))
        return frozen
