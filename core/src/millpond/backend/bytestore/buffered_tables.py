"""The write-back buffer: tables that read each touched entry once and write it once.

Within a bundle the tables keep entries as objects. A flush serializes each dirty one once, into
one atomic batch for the store; the changelog records the same batch. Addresses are the physical
keys: key group, key, namespace (and map key), each part self-delimiting.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.encoded_key import EncodedKey
from millpond.backend.bytestore.write_buffer import WriteBuffer
from millpond.backend.changes import Change
from millpond.backend.expiry import Expiry
from millpond.backend.tables import CellTable
from millpond.types import KeyCodec, TypeSerializer

__all__ = ["SMALL", "BufferedCellTable", "BufferedTable"]

SMALL = 64
"""The weight in bytes of an almost empty entry."""


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
        with closing(self._buffer.store.scan(self._family, self.swept, None)) as scan:
            rows = list(islice(scan, limit))
        removed = 0
        for physical, data in rows:
            kept = expiry.of_bytes(data)
            if kept is not data and not self._is_dirty(physical):
                self.load(physical, kept)
                removed += kept is None
        ended = len(rows) < limit
        self.swept = b"" if ended else rows[-1][0] + b"\0"
        return len(rows), removed, ended

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
        prefix = self._current.prefix
        if prefix is None:
            raise self._current.missing()
        return prefix + namespace


class BufferedCellTable(BufferedTable, CellTable):
    """Cells over a byte store; the hot path is one dictionary look-up by address."""

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
        self._entries: dict[bytes, Any] = {}
        self._dirty: set[bytes] = set()

    @override
    def get(self, namespace: Any) -> Any:
        address = self._address(namespace)
        try:
            return self._entries[address]
        except KeyError:
            return self._read(address)

    def _read(self, address: bytes) -> Any:
        self._buffer.reads += 1
        data = self._buffer.store.get(self._family, address)
        try:
            value = None if data is None else self._serializer.deserialize(data)
        except Exception as error:
            raise self._unreadable(address, error) from error
        self._buffer.make_room(SMALL if data is None else len(data) + SMALL)
        self._entries[address] = value
        return value

    @override
    def put(self, namespace: Any, value: Any) -> None:
        address = self._address(namespace)
        if address not in self._dirty:
            self._buffer.make_room(self._serializer.weight(value))
            self._dirty.add(address)
        self._entries[address] = value

    @override
    def remove(self, namespace: Any) -> None:
        address = self._address(namespace)
        if address not in self._dirty:
            self._buffer.make_room(SMALL)
            self._dirty.add(address)
        self._entries[address] = None

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        self._entries[key] = None if value is None else self._serializer.deserialize(value)
        self._dirty.add(key)

    @override
    def _is_dirty(self, physical: bytes) -> bool:
        return physical in self._dirty

    @override
    def changed_entries(self) -> int:
        return len(self._dirty)

    def changes(self) -> list[Change]:
        """The dirty entries, serialized and sorted."""
        entries, serialize = self._entries, self._serializer.serialize
        changes: list[Change] = []
        for address in sorted(self._dirty):
            value = entries[address]
            changes.append((address, None if value is None else serialize(value)))
        return changes

    def flushed(self) -> None:
        """Empty the buffer: the changes are stored."""
        self._entries = {}
        self._dirty = set()
