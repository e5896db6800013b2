"""The write-back buffer: tables that read each touched entry once and write it once.

Within a bundle the tables keep entries as objects. A flush serializes each dirty one once, into
one atomic batch for the store; the changelog records the same batch. Addresses are the physical
keys: key group, key, namespace (and map key), each part self-delimiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import islice, repeat
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.encoded_key import EncodedKey
from millpond.backend.bytestore.reading_habit import ReadingHabit
from millpond.backend.bytestore.write_buffer import WriteBuffer
from millpond.backend.changes import Change, Changes, serialized
from millpond.backend.chosen_keys import SubtaskKeys
from millpond.backend.expiry import Expiry
from millpond.backend.tables import CellTable
from millpond.types import KeyCodec, TypeSerializer
from millpond.types.keys import VoidKeyCodec

__all__ = ["UNREAD", "BufferedCellTable", "BufferedTable"]

UNREAD: Any = object()
"""The value of an entry that was not read from the store."""

_VALUE, _CHANGED, _WEIGHT = 0, 1, 2
_NOWHERE: Any = object()
_PART = 64
"""Parts take at most so many times their stored bytes: the smallest has one byte. A read of a few
bytes is not weighed (0.15 µs less), for its entry's cost covers them."""
_SLICE = 4096
"""So many entries of a bulk call are read or changed before the buffer is asked for room."""


class BufferedTable:
    """The base of both tables: the addresses of entries.

    Attributes:
        swept: the position that the clean-up has reached.
    """

    def __init__(
        self, current: EncodedKey, buffer: WriteBuffer, family: str, namespaces: KeyCodec
    ) -> None:
        self._current = current
        self._buffer = buffer
        self._family = family
        self._namespaces = namespaces
        self.swept = b""

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """See ``CellTable.sweep``; buffered changes are newer than stored rows."""
        looked, removed, physical = 0, 0, b""
        expired: list[Change] = []  # rows that stay as they are may be large, and are not held
        with closing(self._buffer.store.scan(self._family, self.swept, None)) as scan:
            for looked, (physical, data) in enumerate(islice(scan, limit), 1):  # noqa: B007
                kept = expiry.of_bytes(data)
                if kept is not data:
                    expired.append((physical, kept))
        for key, kept in expired:
            if not self._is_dirty(key):
                self.load(key, kept)
                removed += kept is None
        ended = looked < limit
        self.swept = b"" if ended else physical + b"\0"
        return looked, removed, ended

    def load(self, key: bytes, value: bytes | None) -> None:
        """Put a portable row, or remove it for None: a change like any other in the bundle."""
        raise NotImplementedError

    def _is_dirty(self, physical: bytes) -> bool:
        raise NotImplementedError

    def _unreadable(self, physical: bytes, error: Exception) -> Exception:
        return self._buffer.unreadable(self._family, physical, error)

    def prepare_namespace(self, namespace: Any) -> Any:
        """The encoded namespace."""
        return self._namespaces.encode(namespace)

    def _address(self, namespace: bytes) -> bytes:
        """The physical key, or the start of it, for the current key."""
        prefix: bytes | None = self._current.address
        if prefix is None:
            raise self._current.missing()
        return prefix + namespace


class BufferedCellTable(BufferedTable, CellTable):
    """Cells over a byte store.

    Each touched address has an entry: a list of its value (``UNREAD`` before anyone has asked),
    whether the bundle has changed it, and the bytes that the buffer accounts for it. The entry of
    the last access is held: rows come sorted by key, so most accesses find theirs by two
    comparisons (0.1 µs, a look-up by address takes 0.3). No prefix object serves two keys, so it
    tells whether the key is still the same.

    The buffer has room for so many entries; only values that may be large are weighed (0.2 µs a key
    less for all others), each time, for they may grow.
    """

    def __init__(
        self,
        current: EncodedKey,
        buffer: WriteBuffer,
        family: str,
        namespaces: KeyCodec,
        serializer: TypeSerializer[Any],
    ) -> None:
        super().__init__(current, buffer, family, namespaces)
        self._serializer = serializer
        self._sized = serializer.sized
        self._cost = buffer.entry_cost
        self._little = self._cost // _PART
        self._within: Any = None
        self._habit = ReadingHabit()
        # Which namespaces a key's rows lead to, windows for one, nobody knows beforehand.
        if isinstance(namespaces, VoidKeyCodec):
            current.readers.append(self.read_ahead)
        self.flushed()

    def flushed(self) -> None:
        """Empty the buffer: the changes are stored."""
        self._entries: dict[bytes, list[Any]] = {}
        self._prefix: Any = _NOWHERE
        self._entry: list[Any] = []

    @override
    def get(self, namespace: Any) -> Any:
        if self._current.address is not self._prefix or namespace is not self._within:
            self._turn(namespace)
        value = self._entry[_VALUE]
        return self._read() if value is UNREAD else value

    @override
    def put(self, namespace: Any, value: Any) -> None:
        if self._current.address is not self._prefix or namespace is not self._within:
            self._turn(namespace)
        if self._sized:
            weight = self._serializer.weight(value)
            if weight > self._entry[_WEIGHT]:
                self._weigh(weight)
        entry = self._entry
        entry[_VALUE] = value
        entry[_CHANGED] = True

    @override
    def remove(self, namespace: Any) -> None:
        self._turn(namespace)
        self._entry[:2] = None, True

    @override
    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        """By loops in C, the store's own apart: a quarter of what single reads cost."""
        found: list[Any] = []
        for addresses in self._slices(namespace, keys):
            cells = list(map(self._entries.get, addresses))
            if not any(cells):
                found += self._read_many(addresses)
                continue
            values = [UNREAD if cell is None else cell[_VALUE] for cell in cells]
            unread = [at for at, value in enumerate(values) if value is UNREAD]
            read = self._read_many([addresses[at] for at in unread])
            for at, value in zip(unread, read, strict=True):
                values[at] = value
            found += values
        return found

    @override
    def put_many(self, namespace: Any, keys: SubtaskKeys, values: list[Any]) -> None:
        start = 0
        for addresses in self._slices(namespace, keys):
            part = values[start : start + len(addresses)]
            start += len(addresses)
            weights = None
            if self._sized:
                weigh = self._serializer.weight
                weights = [0 if value is None else weigh(value) for value in part]
            self._insert(addresses, part, weights, changed=True)

    def read_ahead(self, keys: SubtaskKeys) -> None:
        """Read the entries of keys that come next, if the function has read most before.

        As many as the buffer has room for. What cannot be read is told of where the function asks
        for it.
        """
        if not self._habit.reads_ahead(len(keys)):
            return
        addresses = keys.addresses
        if not self._entries.keys().isdisjoint(addresses):
            addresses = [address for address in addresses if address not in self._entries]
        start = 0
        with suppress(Exception):
            while part := addresses[start : start + self._habit.at_once(self._buffer)]:
                self._read_distinct(part)
                start += len(part)

    def _needed(self, addresses: list[bytes], weights: list[int] | None) -> int:
        """By how many bytes the buffer grows; it shrinks where values become small.

        There are no weights where no value is large.
        """
        if weights is None:
            return len(set(addresses).difference(self._entries)) * self._cost
        needs = dict(zip(addresses, weights, strict=True))  # of a key that comes twice, the last
        replaced = filter(None, map(self._entries.get, needs))
        freed: int = sum(entry[_WEIGHT] for entry in replaced)
        return sum(needs.values()) - freed

    def _insert(
        self, addresses: list[bytes], values: list[Any], weights: list[int] | None, *, changed: bool
    ) -> None:
        """Put new entries in the place of those that there were."""
        if weights is not None:
            weights = [max(weight, self._cost) for weight in weights]
        self._buffer.make_room_for(partial(self._needed, addresses, weights))
        entries = map(list, zip(values, repeat(changed), weights or repeat(self._cost)))
        self._prefix = _NOWHERE
        self._entries.update(zip(addresses, entries, strict=True))

    def _slices(self, namespace: bytes, keys: SubtaskKeys) -> Iterator[list[bytes]]:
        """The addresses of keys, so many at a time that the buffer keeps to its limit."""
        addresses = keys.addresses
        if namespace:
            addresses = [prefix + namespace for prefix in addresses]
        for start in range(0, len(addresses), _SLICE):
            yield addresses[start : start + _SLICE]

    def _read_many(self, addresses: list[bytes]) -> list[Any]:
        """Read entries from the store, each once."""
        distinct = list(dict.fromkeys(addresses))
        values = self._read_distinct(distinct)
        if len(distinct) == len(addresses):
            return values
        by_address = dict(zip(distinct, values, strict=True))
        return [by_address[address] for address in addresses]

    def _read_distinct(self, addresses: list[bytes]) -> list[Any]:
        """Read entries from the store that the buffer does not hold, or not their values."""
        rows = self._buffer.store.get_many(self._family, addresses)
        self._buffer.reads += len(addresses)
        values = self._decoded(addresses, rows)
        weights = list(map(self._weight_read, values, rows)) if self._sized else None
        self._habit.saw(max(weights or (), default=0))
        self._insert(addresses, values, weights, changed=False)
        return values

    def _decoded(self, addresses: list[bytes], rows: list[bytes | None]) -> list[Any]:
        there = [data for data in rows if data is not None]
        try:
            values = self._serializer.deserialize_many(there)
        except Exception:  # noqa: BLE001 - which one it is, reading them singly tells
            return [self._deserialized(*row) for row in zip(addresses, rows, strict=True)]
        if len(there) == len(rows):
            return values
        each = iter(values)
        return [None if data is None else next(each) for data in rows]

    def _deserialized(self, address: bytes, data: bytes | None) -> Any:
        try:
            return None if data is None else self._serializer.deserialize(data)
        except Exception as error:
            raise self._unreadable(address, error) from error

    def _turn(self, namespace: Any) -> None:
        """Hold the entry of the current key and a namespace."""
        prefix = self._current.address
        if prefix is None:
            raise self._current.missing()
        address = prefix + namespace
        entry = self._entries.get(address)
        if entry is None:
            buffer = self._buffer
            cost = self._cost
            buffer.room -= cost  # nearly as make_room does: a call less
            if buffer.room < 0:
                buffer.flush()
            entry = self._entries[address] = [UNREAD, False, cost]
        self._prefix, self._within = prefix, namespace
        self._held, self._entry = address, entry

    def _read(self) -> Any:
        """Read the held entry."""
        address, buffer = self._held, self._buffer
        buffer.reads += 1
        self._habit.singly += 1
        data = buffer.store.get(self._family, address)
        if data is None:
            self._entry[_VALUE] = None
            return None
        value = self._deserialized(address, data)
        if self._sized:
            weight = len(data)
            if weight > self._little:
                weight = self._weight_read(value, data)
            self._habit.saw(weight)
            if weight > self._entry[_WEIGHT]:
                self._weigh(weight)
        self._entry[_VALUE] = value
        return value

    def _weight_read(self, value: Any, data: bytes | None) -> int:
        """Of a value that may be large: its small parts take many times their bytes."""
        return 0 if data is None else max(len(data), self._serializer.weight(value))

    def _weigh(self, weight: int) -> None:
        """Account for a held entry that grows, and is another one where that leads to a flush."""
        buffer = self._buffer
        if buffer.room < weight - self._entry[_WEIGHT]:
            buffer.flush()
            self._turn(self._within)
        buffer.room -= weight - self._entry[_WEIGHT]
        self._entry[_WEIGHT] = weight

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        loaded = None if value is None else self._serializer.deserialize(value)
        self._entries.setdefault(key, [UNREAD, False, self._cost])[:2] = loaded, True

    @override
    def _is_dirty(self, physical: bytes) -> bool:
        return physical in self._entries and self._entries[physical][_CHANGED]

    @override
    def changed_entries(self) -> int:
        return sum(changed for _, changed, _ in self._entries.values())

    def changes(self) -> Changes:
        """The changed entries, serialized and sorted; those of sorted rows are sorted already."""
        entries = self._entries
        keys = [address for address, entry in entries.items() if entry[_CHANGED]]
        values = [value for value, changed, _ in entries.values() if changed]
        return Changes(keys, serialized(self._serializer, values)).in_order()
