"""Cell tables over a byte store: values as objects until the flush."""

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
    """The base of tables over a byte store: addresses and clean-up.

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
        expired: list[Change] = []  # other rows may be large, and are not kept
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
        """Put a portable row, or remove it for None, as a change of the bundle."""
        raise NotImplementedError

    def _is_dirty(self, physical: bytes) -> bool:
        raise NotImplementedError

    def _unreadable(self, physical: bytes, error: Exception) -> Exception:
        return self._buffer.unreadable(self._family, physical, error)

    def prepare_namespace(self, namespace: Any) -> Any:
        """Return the encoded namespace."""
        return self._namespaces.encode(namespace)

    def _address(self, namespace: bytes) -> bytes:
        """Return the physical key, or its beginning, for the current key."""
        prefix: bytes | None = self.current.address
        if prefix is None:
            raise self.current.no_key_error()
        return prefix + namespace


_UNREAD: Any = object()
_SLICE = 4096
"""The number of entries of a bulk call that are read or changed before the buffer makes room."""


class BufferedCellTable(BufferedTable, CellTable):
    """Cells over a byte store.

    Values that may be large are serialized when they are written, so that the buffer counts the
    sizes of their rows; all others are serialized in the flush.

    Attributes:
        values: the values read or written since the flush, by address; None for a missing entry.
            An object for each entry would make an access a tenth slower.
        changed: the addresses that the bundle has changed, with the rows of values that may be
            large. Both dictionaries remain the same objects.
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
        self._costs: dict[bytes, int] = {}  # of entries that cost more than the least
        self._habit = ReadingHabit()
        # The namespaces that a key's rows lead to, such as windows, are unknown beforehand.
        if isinstance(namespaces, VoidKeyCodec):
            current.readers.append(self.read_ahead)

    def flushed(self) -> None:
        """Empty the buffer: the changes are stored."""
        self.values.clear()
        self.changed.clear()
        self._costs.clear()

    @override
    def hold(self, namespace: Any) -> Held:
        """Share the buffer if there is no namespace: then a key has the same address everywhere.

        A derived class shares nothing, because it may override ``get``.
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
        """Read by loops in C and one call of the store: a quarter of the time of single reads."""
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
        """Read the entries of keys that come next, if the function has read most before.

        Read as many as the buffer has room for. An entry that cannot be read raises its error when
        the function asks for it.
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
        """Iterate over the addresses of keys, in slices small enough for the buffer's limit."""
        addresses = keys.addresses
        if namespace:
            addresses = [prefix + namespace for prefix in addresses]
        for start in range(0, len(addresses), _SLICE):
            yield addresses[start : start + _SLICE]

    def _insert(self, addresses: list[bytes], values: list[Any], rows: list[bytes | None]) -> None:
        """Put entries into the buffer and count their sizes; this may flush first."""
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
        """Return the bytes that the buffer counts for an entry that it holds."""
        return self._costs.get(address, self._buffer.entry_cost)

    def _enter(self, address: bytes | None, cost: int = 0) -> None:
        """Count an entry that is put into the buffer; raise if there is no current key."""
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
        """Read an entry that the buffer does not hold."""
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
        """Read entries that the buffer does not hold, and put them into it; none occurs twice."""
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
        """Return the changed entries, serialized and sorted."""
        keys = list(self.changed)
        if self._sized:
            rows = list(self.changed.values())
        else:
            rows = serialized(self._serializer, list(map(self.values.__getitem__, keys)))
        return Changes(keys, rows).in_order()
