"""Sorted map tables over a byte store: iterations merge the buffer with the store's order."""

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
    """Ranges of physical keys in which the buffer overrides every stored row.

    Without them, a program that takes the first entry again and again would visit all removed rows
    each time. The ranges do not touch each other.
    """

    def __init__(self) -> None:
        self._ends: Any = SortedDict()  # the end of each range, by its start

    def add(self, start: bytes, end: bytes) -> None:
        """Add a range; combine it with the ranges that it touches."""
        at = self._ends.bisect_right(start) - 1
        if at >= 0:
            before, end_before = self._ends.peekitem(at)
            if start <= end_before:
                start, end = before, max(end, end_before)
        for inner in list(self._ends.irange(start, end)):
            end = max(end, self._ends.pop(inner))
        self._ends[start] = end

    def after(self, key: bytes) -> bytes:
        """Return the least key from ``key`` on that is in no range."""
        at = self._ends.bisect_right(key) - 1
        return key if at < 0 else max(key, self._ends.peekitem(at)[1])

    def before(self, key: bytes) -> bytes:
        """Return ``key``, or the start of the range that contains the keys just before it."""
        at = self._ends.bisect_left(key) - 1
        if at < 0:
            return key
        start, end = self._ends.peekitem(at)
        return start if key <= end else key


class BufferedSortedMapTable(BufferedMapTable, SortedMapTable):
    """The map entries of one state over a byte store, in the order of the physical keys."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._new_map = SortedEntries
        self._known = _KnownRanges()

    @override
    def range_at(self, place: Any, span: KeySpan) -> Iterator[tuple[Any, Any]]:
        return self._decoded(place, self._merged(place, span))

    @override
    def _merged(self, address: bytes, span: KeySpan = _ALL) -> Iterator[tuple[bytes, Any]]:
        """Iterate in order; the caller may change any entries.

        The next entry is the nearest one of the buffer and the store. The store changes only in a
        flush, which replaces ``_maps``: then the store is scanned again behind the last key.
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
        """Return whether the buffer has an entry, or knows that the entry is missing."""
        return key in self._maps.get(address, ()) or key in self._absent.get(address, ())

    def _stored(self, address: bytes, span: KeySpan) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over map keys and data of the stored rows that the buffer does not override.

        Until the next flush, the buffer overrides a row for ever. So if all rows between two rows
        are overridden, later scans leave that range out.
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
            skipped = False  # whether rows were left out since the last yielded one
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
                    known.add(*seen)  # joined with the range that begins here, which the next scan
                    break  # leaves out
            else:
                if skipped:
                    known.add(low, high)
                return

    @override
    def flushed(self) -> None:
        super().flushed()
        self._known = _KnownRanges()
