"""Sorted map tables over a byte store, which iterate over the buffer and the store in key order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from sortedcontainers import SortedDict
from typing_extensions import override

from millpond.backend.bytestore.buffered_maps import BufferedMapTable
from millpond.backend.sorted_entries import SortedCursor, SortedEntries
from millpond.spi.keys import end_of_prefix
from millpond.spi.tables import KeySpan, SortedMapTable

_ALL = KeySpan()


class _KnownRanges:
    """Ranges of physical keys in which every stored row has a newer entry in the buffer.

    Without them, a program that repeatedly takes the first entry would visit all removed rows each
    time. Two ranges never touch each other.
    """

    def __init__(self) -> None:
        self._ends: Any = SortedDict()  # the end of each range, by its start

    def add(self, start: bytes, end: bytes) -> None:
        """Add the range from `start` to `end`, and join it with the ranges that it touches."""
        at = self._ends.bisect_right(start) - 1
        if at >= 0:
            before, end_before = self._ends.peekitem(at)
            if start <= end_before:
                start, end = before, max(end, end_before)
        for inner in list(self._ends.irange(start, end)):
            end = max(end, self._ends.pop(inner))
        self._ends[start] = end

    def after(self, key: bytes) -> bytes:
        """Return the least key that is not less than `key` and is in no range."""
        at = self._ends.bisect_right(key) - 1
        return key if at < 0 else max(key, self._ends.peekitem(at)[1])

    def before(self, key: bytes) -> bytes:
        """Return the start of the range that contains the keys just before `key`, or else `key`."""
        at = self._ends.bisect_left(key) - 1
        if at < 0:
            return key
        start, end = self._ends.peekitem(at)
        return start if key <= end else key


class BufferedSortedMapTable(BufferedMapTable, SortedMapTable):
    """A sorted map table over a byte store."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._new_map = SortedEntries
        self._known = _KnownRanges()

    @override
    def range_at(self, place: Any, span: KeySpan) -> Iterator[tuple[Any, Any]]:
        return self._decoded(place, self._merged(place, span))

    @override
    def _merged(self, address: bytes, span: KeySpan = _ALL) -> Iterator[tuple[bytes, Any]]:
        """Iterate over encoded map keys and values in order; the caller may change entries.

        The next entry is the nearest one of the buffer and the store. The store changes only in a
        flush, which replaces ``_maps``. After a flush the store is scanned again, from the last key
        on.
        """
        deserialize = self._serializer.deserialize
        cursor, passed = SortedCursor(span), None
        while True:
            maps, rows = self._maps, self._stored(address, span.after(passed))
            row = next(rows, None)
            while self._maps is maps:
                while row is not None and self._overrides(address, row[0]):
                    row = next(rows, None)
                held: Any = maps.get(address)
                key = cursor.peek(held)
                if row is not None and (key is None or (key < row[0]) is span.reverse):
                    key = row[0]
                    try:
                        value = deserialize(row[1])
                    except Exception as error:
                        raise self._unreadable(address + key, error) from error
                    row = next(rows, None)
                elif key is None:
                    return
                else:
                    value = held[key]
                cursor.pass_by(key)
                passed = key
                yield key, value

    def _overrides(self, address: bytes, key: bytes) -> bool:
        """Return whether the buffer contains the entry, or knows that the entry does not exist."""
        return key in self._maps.get(address, ()) or key in self._absent.get(address, ())

    def _stored(self, address: bytes, span: KeySpan) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the map keys and values of stored rows without a newer entry in the buffer.

        A row that has a newer entry in the buffer keeps having one until the next flush. So if this
        holds for all rows between two yielded rows, later scans skip that range.
        """
        if address in self._cleared:
            self.current.require_open()
            return
        reverse, known = span.reverse, self._known
        low, high = address + span.start, end_of_prefix(address)
        if span.stop is not None:
            high = address + span.stop
        assert high is not None  # no address begins with the byte 255
        while True:
            low, high = (low, known.before(high)) if reverse else (known.after(low), high)
            if low >= high:
                return
            skipped = False  # whether rows were skipped since the last yielded one
            chunks = self._buffer.chunks(self._family, low, high, reverse=reverse)
            for full, data in chain.from_iterable(chunks):
                key, behind = full[len(address) :], full + b"\0"
                seen = (behind, high) if reverse else (low, full)
                if not self._overrides(address, key):
                    if skipped:
                        known.add(*seen)
                    yield key, data
                    low, high = (low, full) if reverse else (behind, high)
                    skipped = False
                    continue
                skipped = True
                if known.before(behind) < behind if reverse else known.after(full) > full:
                    known.add(*seen)  # joins the range that begins here, which the next scan skips
                    break
            else:
                if skipped:
                    known.add(low, high)
                return

    @override
    def flushed(self) -> None:
        super().flushed()
        self._known = _KnownRanges()
