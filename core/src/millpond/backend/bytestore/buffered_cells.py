"""Cell tables over a byte store, which buffer values as objects until the next flush.

A cell table has at most one value for each key and namespace. The address of an entry is its
physical key in the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice, repeat
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.write_buffer import EncodedKey, ReadingHabit, WriteBuffer
from millpond.spi.keys import SubtaskKeys
from millpond.spi.portable_rows import Change, Changes, Expiry, serialized
from millpond.spi.tables import CellTable, Held
from millpond.types import KeyCodec, TypeSerializer
from millpond.types.key_codecs import VoidKeyCodec


class BufferedTable:
    """The base class of tables over a byte store.

    Attributes:
        swept: the physical key that the removal of expired entries has reached.
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
        """Visit up to `limit` stored values and remove the expired ones; see ``CellTable.sweep``.

        Rows with a buffered change are skipped, because the change is newer.
        """
        looked, removed, physical = 0, 0, b""
        expired: list[Change] = []  # only these rows are kept, because rows may be large
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
        """Put a portable row as a buffered change, or remove it if `value` is None."""
        raise NotImplementedError

    def _is_dirty(self, physical: bytes) -> bool:
        raise NotImplementedError

    def _unreadable(self, physical: bytes, error: Exception) -> Exception:
        return self._buffer.unreadable(self._family, physical, error)

    def prepare_namespace(self, namespace: Any) -> Any:
        """Return the encoded namespace."""
        return self._namespaces.encode(namespace)

    def _address(self, namespace: bytes) -> bytes:
        """Return the physical key of the current key and `namespace`.

        In a map table, this is only the beginning of an entry's physical key.
        """
        prefix: bytes | None = self.current.address
        if prefix is None:
            raise self.current.no_key_error()
        return prefix + namespace


_UNREAD: Any = object()
_SLICE = 4096
"""The maximum number of entries of a bulk call that are read or changed at once."""


class BufferedCellTable(BufferedTable, CellTable):
    """A cell table over a byte store.

    A value that may be large is serialized when it is written, so that the buffer can count the
    size of its row. Other values are serialized in the flush.

    Attributes:
        values: the values that were read or written since the last flush, by address. None means
            that there is no entry. There is no object for each entry, because that would make an
            access a tenth slower.
        changed: the changed addresses. The value is the serialized row if the value may be large,
            else None. Both dictionaries always remain the same objects.
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
        self.values: dict[bytes, Any] = {}
        self.changed: dict[bytes, bytes | None] = {}
        self._costs: dict[bytes, int] = {}  # only of entries that cost more than the minimum
        self._habit = ReadingHabit()
        # Entries with namespaces, such as windows, cannot be read ahead: before a row is
        # processed, its namespaces are unknown.
        if isinstance(namespaces, VoidKeyCodec):
            current.readers.append(self.read_ahead)

    def flushed(self) -> None:
        """Empty the buffer, because the changes are stored."""
        self.values.clear()
        self.changed.clear()
        self._costs.clear()

    @override
    def hold(self, namespace: Any) -> Held:
        """Share the buffer's dictionaries if the state has no namespaces.

        Without namespaces, the address depends only on the key. A derived class shares nothing,
        because it may override ``get``.
        """
        if type(self) is not BufferedCellTable or namespace:
            return {}
        return dict.fromkeys(self.current.key_group_range, (self.values, self.changed))

    @override
    def get(self, namespace: Any) -> Any:
        address = self.current.address
        if namespace and address is not None:
            address += namespace
        value = self.values.get(address, _UNREAD)
        return self._read(address) if value is _UNREAD else value

    @override
    def put(self, namespace: Any, value: Any) -> None:
        address = self.current.address
        if namespace and address is not None:
            address += namespace
        row = None
        if self._sized:
            row = self._serializer.serialize(value)
            self._enter(address, self._buffer.cost_of(row))
        elif address not in self.values:
            self._enter(address)
        self.values[address] = value
        self.changed[address] = row

    @override
    def remove(self, namespace: Any) -> None:
        address = self._address(namespace)
        self._enter(address)
        self.values[address] = self.changed[address] = None

    @override
    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        """Return the value of each key.

        Loops in C and one call of the store take a quarter of the time of single reads.
        """
        found: list[Any] = []
        for addresses in self._slices(namespace, keys):
            held = list(map(self.values.get, addresses, repeat(_UNREAD)))
            pairs = zip(addresses, held, strict=True)
            missing = dict.fromkeys(address for address, value in pairs if value is _UNREAD)
            if missing:
                read = dict(zip(missing, self._read_distinct(list(missing)), strict=True))
                pairs = zip(addresses, held, strict=True)
                held = [read[address] if value is _UNREAD else value for address, value in pairs]
            found += held
        return found

    @override
    def put_many(self, namespace: Any, keys: SubtaskKeys, values: list[Any]) -> None:
        start = 0
        for addresses in self._slices(namespace, keys):
            part = values[start : start + len(addresses)]
            start += len(addresses)
            rows: list[bytes | None] = [None] * len(part)
            if self._sized:
                rows = serialized(self._serializer, part)
            self._insert(addresses, part, rows)
            self.changed.update(zip(addresses, rows, strict=True))

    def read_ahead(self, keys: SubtaskKeys) -> None:
        """Read the entries of the next rows' keys, if the function has read most entries so far.

        At most as many entries are read as the buffer has room for. If an entry cannot be read, the
        error is raised only when the function asks for the entry.
        """
        if not self._habit.reads_ahead(len(keys)):
            return
        addresses = keys.addresses
        if not self.values.keys().isdisjoint(addresses):
            addresses = [address for address in addresses if address not in self.values]
        start = 0
        with suppress(Exception):
            while part := addresses[start : start + self._habit.batch_size(self._buffer)]:
                self._read_distinct(part)
                start += len(part)

    def _slices(self, namespace: bytes, keys: SubtaskKeys) -> Iterator[list[bytes]]:
        """Iterate over the addresses of `keys`, in lists that are small enough for the buffer."""
        addresses = keys.addresses
        if namespace:
            addresses = [prefix + namespace for prefix in addresses]
        for start in range(0, len(addresses), _SLICE):
            yield addresses[start : start + _SLICE]

    def _insert(self, addresses: list[bytes], values: list[Any], rows: list[bytes | None]) -> None:
        """Put entries into the buffer and count their sizes. This may flush the buffer first.

        Args:
            addresses: the address of each entry.
            values: the value of each entry.
            rows: the serialized row of each entry whose size counts; None to count only the
                minimum.
        """
        buffer = self._buffer
        costs = dict(zip(addresses, map(buffer.cost_of, rows), strict=True))
        needed = sum(costs.values())
        replaced = sum(self._cost(each) for each in costs if each in self.values)
        if buffer.room < needed - replaced:
            buffer.flush()
            replaced = 0
        buffer.room -= needed - replaced
        self.values.update(zip(addresses, values, strict=True))
        if self._sized:
            self._costs.update(costs)

    def _cost(self, address: bytes) -> int:
        """Return the number of bytes that the buffer counts for an entry in it."""
        return self._costs.get(address, self._buffer.entry_cost)

    def _enter(self, address: bytes | None, cost: int = 0) -> None:
        """Count the bytes of an entry that is put into the buffer."""
        if address is None:
            raise self.current.no_key_error()
        buffer = self._buffer
        cost = cost or buffer.entry_cost
        needed = cost - self._cost(address) if address in self.values else cost
        if buffer.room < needed:
            buffer.flush()
            needed = cost
        buffer.room -= needed
        if self._sized:
            self._costs[address] = cost

    def _read(self, address: bytes | None) -> Any:
        """Return the value of an entry that is not in the buffer."""
        if address is None:
            raise self.current.no_key_error()
        buffer = self._buffer
        buffer.reads += 1
        self._habit.singly += 1
        data = buffer.store.get(self._family, address)
        value = self._deserialized(address, data)
        if self._sized and data is not None:
            self._habit.saw(len(data))
        self._enter(address, buffer.cost_of(data if self._sized else None))
        self.values[address] = value
        return value

    def _read_distinct(self, addresses: list[bytes]) -> list[Any]:
        """Read the values at `addresses` into the buffer, and return them.

        The addresses must be distinct, and not in the buffer.
        """
        rows = self._buffer.store.get_many(self._family, addresses)
        self._buffer.reads += len(addresses)
        there = [data for data in rows if data is not None]
        try:
            each = map(self._serializer.deserialize, there)
            values = [None if data is None else next(each) for data in rows]
        except Exception:  # noqa: BLE001 - reading them one by one names the damaged one
            values = [self._deserialized(*row) for row in zip(addresses, rows, strict=True)]
        if self._sized:
            self._habit.saw(max(map(len, there), default=0))
        self._insert(addresses, values, rows if self._sized else [None] * len(rows))
        return values

    def _deserialized(self, address: bytes, data: bytes | None) -> Any:
        try:
            return None if data is None else self._serializer.deserialize(data)
        except Exception as error:
            raise self._unreadable(address, error) from error

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        self.values[key] = None if value is None else self._serializer.deserialize(value)
        self.changed[key] = value if self._sized else None

    @override
    def _is_dirty(self, physical: bytes) -> bool:
        return physical in self.changed

    @override
    def changed_entries(self) -> int:
        return len(self.changed)

    def changes(self) -> Changes:
        """Return the changed entries as serialized rows, sorted by key."""
        keys = list(self.changed)
        if self._sized:
            rows = list(self.changed.values())
        else:
            rows = serialized(self._serializer, list(map(self.values.__getitem__, keys)))
        return Changes(keys, rows).in_order()
