"""Cell tables over a byte store: values as objects until the flush."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import islice, repeat
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.write_buffer import EncodedKey, ReadingHabit, WriteBuffer
from millpond.spi.keys import SubtaskKeys
from millpond.spi.rows import Change, Changes, Expiry, serialized
from millpond.spi.tables import CellTable, Held
from millpond.types import KeyCodec, TypeSerializer
from millpond.types.keys import VoidKeyCodec

UNREAD: Any = object()
"""The value of an entry that was not read from the store."""


class BufferedTable:
    """The base of both tables: the addresses of entries.

    Attributes:
        swept: the position that the clean-up has reached.
    """

    def __init__(
        self, current: EncodedKey, buffer: WriteBuffer, family: str, namespaces: KeyCodec
    ) -> None:
        self.current = current
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
        prefix: bytes | None = self.current.address
        if prefix is None:
            raise self.current.missing()
        return prefix + namespace


_NOWHERE: Any = object()
_PART = 64
"""Parts take at most so many times their stored bytes: the smallest has one byte. A read of a few
bytes is not weighed (0.15 µs less), for its entry's cost covers them."""
_SLICE = 4096
"""So many entries of a bulk call are read or changed before the buffer is asked for room."""


class BufferedCellTable(BufferedTable, CellTable):
    """Cells over a byte store.

    Without a namespace a key's prefix is the address of its entry. With one, the address of the
    last access is held: rows come sorted by key, so most accesses find theirs by two comparisons
    (to join and to hash an address takes 0.04 µs). No prefix object serves two keys, so it tells
    whether the key is still the same.

    The buffer has room for so many entries; only values that may be large are weighed (0.2 µs a key
    less for all others), each time, for they may grow.

    Attributes:
        values: what was read or written since the flush, by address; None where there is nothing,
            ``UNREAD`` where that has failed: all that is accounted for is here. There is no object
            an entry, which the garbage collector would go through: a tenth less of an access by
            hand.
        changed: the addresses that the bundle has changed. Both dictionaries stay the same objects.
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
        self.values: dict[bytes, Any] = {}
        self.changed: dict[bytes, None] = {}
        self._weights: dict[bytes, int] = {}
        self._prefix: Any = _NOWHERE
        self._within: Any = None
        self._held = b""
        self._habit = ReadingHabit()
        # Which namespaces a key's rows lead to, windows for one, nobody knows beforehand.
        if isinstance(namespaces, VoidKeyCodec):
            current.readers.append(self.read_ahead)

    def flushed(self) -> None:
        """Empty the buffer: the changes are stored."""
        self.values.clear()
        self.changed.clear()
        self._weights.clear()

    @override
    def hold(self, namespace: Any) -> Held:
        """Without namespaces, addresses are those of keys; a derived class may override ``get``."""
        if type(self) is not BufferedCellTable or namespace:
            return {}
        return dict.fromkeys(self.current.key_group_range, (self.values, self.changed))

    @override
    def get(self, namespace: Any) -> Any:
        address = self.current.address
        if namespace:
            held = address is self._prefix and namespace is self._within
            address = self._held if held else self._turn(namespace)
        value = self.values.get(address, UNREAD)
        return self._read(address) if value is UNREAD else value

    @override
    def put(self, namespace: Any, value: Any) -> None:
        address = self.current.address
        if namespace:
            held = address is self._prefix and namespace is self._within
            address = self._held if held else self._turn(namespace)
        if address not in self.values:
            self._enter(address)
        if self._sized:
            self._weigh(address, self._serializer.weight(value))
        self.values[address] = value
        self.changed[address] = None

    @override
    def remove(self, namespace: Any) -> None:
        address = self._turn(namespace)
        if address not in self.values:
            self._enter(address)
        self.values[address] = self.changed[address] = None

    @override
    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        """By loops in C, the store's own apart: a quarter of what single reads cost."""
        found: list[Any] = []
        for addresses in self._slices(namespace, keys):
            if self.values.keys().isdisjoint(addresses):
                found += self._read_many(addresses)
                continue
            values = list(map(self.values.get, addresses, repeat(UNREAD)))
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
            self._insert(addresses, part, weights)
            self.changed.update(dict.fromkeys(addresses))

    def read_ahead(self, keys: SubtaskKeys) -> None:
        """Read the entries of keys that come next, if the function has read most before.

        As many as the buffer has room for. What cannot be read is told of where the function asks
        for it.
        """
        if not self._habit.reads_ahead(len(keys)):
            return
        addresses = keys.addresses
        if not self.values.keys().isdisjoint(addresses):
            addresses = [address for address in addresses if address not in self.values]
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
            return len(set(addresses).difference(self.values)) * self._cost
        needs = dict(zip(addresses, weights, strict=True))  # of a key that comes twice, the last
        freed = sum(self._weights.get(each, self._cost) for each in needs if each in self.values)
        return sum(needs.values()) - freed

    def _insert(self, addresses: list[bytes], values: list[Any], weights: list[int] | None) -> None:
        """Put new entries in the place of those that there were."""
        if weights is not None:
            weights = [max(weight, self._cost) for weight in weights]
        self._buffer.make_room_for(partial(self._needed, addresses, weights))
        self.values.update(zip(addresses, values, strict=True))
        if weights is not None:
            self._weights.update(zip(addresses, weights, strict=True))

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
        """Read entries from the store that the buffer does not hold."""
        rows = self._buffer.store.get_many(self._family, addresses)
        self._buffer.reads += len(addresses)
        values = self._decoded(addresses, rows)
        weights = list(map(self._weight_read, values, rows)) if self._sized else None
        self._habit.saw(max(weights or (), default=0))
        self._insert(addresses, values, weights)
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

    def _turn(self, namespace: Any) -> bytes:
        """Hold the address of the current key and a namespace."""
        prefix = self.current.address
        if prefix is None:
            raise self.current.missing()
        self._prefix, self._within = prefix, namespace
        address: bytes = prefix + namespace
        self._held = address
        return address

    def _enter(self, address: bytes | None) -> None:
        """Account for a new entry, unread as yet; raise where there is no current key."""
        if address is None:
            raise self.current.missing()
        buffer = self._buffer
        buffer.room -= self._cost  # nearly as make_room does: a call less
        if buffer.room < 0:
            buffer.flush()
        self.values[address] = UNREAD

    def _read(self, address: bytes | None) -> Any:
        """Read an entry that the buffer does not hold, or not its value."""
        if address not in self.values:
            self._enter(address)
        assert address is not None
        buffer = self._buffer
        buffer.reads += 1
        self._habit.singly += 1
        data = buffer.store.get(self._family, address)
        value = None if data is None else self._deserialized(address, data)
        if self._sized and data is not None:
            weight = len(data)
            if weight > self._little:
                weight = self._weight_read(value, data)
            self._habit.saw(weight)
            self._weigh(address, weight)
        self.values[address] = value
        return value

    def _weight_read(self, value: Any, data: bytes | None) -> int:
        """Of a value that may be large: its small parts take many times their bytes."""
        return 0 if data is None else max(len(data), self._serializer.weight(value))

    def _weigh(self, address: bytes, weight: int) -> None:
        """Account for an entry that grows."""
        buffer = self._buffer
        known = self._weights.get(address, self._cost)
        if weight <= known:
            return
        if buffer.room < weight - known:
            buffer.flush()
            self._enter(address)
            known = self._cost
        buffer.room -= weight - known
        self._weights[address] = weight

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        loaded = None if value is None else self._serializer.deserialize(value)
        self.values[key] = loaded
        self.changed[key] = None

    @override
    def _is_dirty(self, physical: bytes) -> bool:
        return physical in self.changed

    @override
    def changed_entries(self) -> int:
        return len(self.changed)

    def changes(self) -> Changes:
        """The changed entries, serialized and sorted; those of sorted rows are sorted already."""
        keys = list(self.changed)
        values = list(map(self.values.__getitem__, keys))
        return Changes(keys, serialized(self._serializer, values)).in_order()
