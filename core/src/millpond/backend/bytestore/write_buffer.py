"""The write buffer that the tables of a backend share: the store, and the limit of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, islice, repeat

from millpond.safe_decoding import unreadable
from millpond.spi.byte_store import ByteStore
from millpond.spi.keys import CurrentKey, end_of_prefix
from millpond.spi.parameters import KeyedBackendParameters
from millpond.types import KeyCodec

_CHUNKS = (16, 64, 256, 1024)
"""So many rows a scan reads at once, the last number again and again: few where the caller wants
only the first entry of a map."""
_CHUNK_BYTES = 1 << 20
"""A scan of large rows stops earlier, once the first 16 or more together have so many bytes."""
_ENTRY_BYTES = 300
"""What an entry takes besides a value of any size: the key's bytes, objects, a place in a
dictionary, and what the flush makes of them (measured: 330 with keys of 20 bytes)."""


class WriteBuffer:
    """Accounts for the changes that tables hold back, and reads from the store.

    Attributes:
        flush: called when the buffer has no room for another entry.
        entry_cost: the bytes that each entry takes at least, so that only so many fit.
        room: the bytes that are left.
        store: the store that flushes write to.
        reads: the number of rows that tables have read since the store was opened.
    """

    def __init__(
        self,
        parameters: KeyedBackendParameters,
        current: CurrentKey,
        store: ByteStore,
        flush: Callable[[], None],
    ) -> None:
        self.store = store
        self.reads = 0
        self._current = current
        self.flush = flush
        limits = parameters.config.buffer
        self.entry_cost = max(_ENTRY_BYTES, limits.max_bytes // limits.max_entries)
        self._max_bytes: int = limits.max_bytes
        self.room: int = self._max_bytes

    def make_room(self, weight: int) -> None:
        """Account for a buffered entry of ``weight`` bytes; flush early at the limit."""
        weight = max(weight, self.entry_cost)
        if self.room < weight:
            self.flush()
        self.room -= weight

    def make_room_for(self, needed: Callable[[], int]) -> None:
        """Account for many entries; what they need is asked again where that has led to a flush."""
        wanted = needed()
        if self.room < wanted:
            self.flush()
            wanted = needed()
        self.room -= wanted

    def emptied(self) -> None:
        """Note that all changes are stored."""
        self.room = self._max_bytes

    def family(self, name: str) -> str:
        """The family of a state, created if it is missing."""
        if name not in self.store.families():
            self.store.create_family(name)
        return name

    def rows(self, family: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Scan a prefix; no store iterator stays open between rows, so the caller may write.

        What the caller writes in the place of a row that it was given never comes, even where a
        list becomes several rows: the rows behind a row are read before the row is given.
        """
        last: list[tuple[bytes, bytes]] = []
        for chunk in self.chunks(family, prefix):
            yield from last
            yield from chunk[:-1]
            last = chunk[-1:]
        yield from last

    def chunks(
        self, family: str, prefix: bytes, start: bytes = b""
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Scan a prefix, or what is left of it from ``start`` on, in lists, each read at once."""
        start, end = start or prefix, end_of_prefix(prefix)
        for most in chain(_CHUNKS, repeat(_CHUNKS[-1])):
            self._current.require_open()
            with closing(self.store.scan(family, start, end)) as scan:
                rows, ended = _first_rows(scan, most)
            if rows:
                yield rows
            if ended:
                return
            start = rows[-1][0] + b"\0"

    def split(self, physical: bytes, namespaces: KeyCodec) -> tuple[bytes, bytes]:
        """Split a physical key into the address of a map and the encoded map key."""
        current = self._current
        try:
            end = current.layout.parse(physical, current.codec, namespaces).namespace_end
        except Exception as error:
            raise unreadable(current.operator.label, "", physical, error) from error
        return physical[:end], physical[end:]

    def unreadable(self, family: str, physical: bytes, error: Exception) -> Exception:
        """The error for a row that cannot be decoded."""
        return unreadable(self._current.operator.label, family, physical, error)


def _first_rows(
    scan: Iterator[tuple[bytes, bytes]], most: int
) -> tuple[list[tuple[bytes, bytes]], bool]:
    """At most so many rows of a scan, fewer where they are large; and whether they are all."""
    rows: list[tuple[bytes, bytes]] = []
    size = 0
    while len(rows) < most and size < _CHUNK_BYTES:
        part = list(islice(scan, _CHUNKS[0]))
        rows += part
        if len(part) < _CHUNKS[0]:
            return rows, True
        size += sum(len(value) for _, value in part)
    return rows, False
