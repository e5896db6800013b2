"""The write-back buffer: tables that read each touched entry once and write it once.

Within a bundle entries are kept as objects. At a flush the dirty ones are serialized, once,
into one atomic batch for the store, which is also what the changelog records. Addresses are
the physical keys: key group, key, namespace (and map key), each part self-delimiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from millpond.backend.tables import ABSENT, CellTable, MapTable
from millpond.types import KeyCodec, TypeSerializer
from millpond.untrusted import unreadable

if TYPE_CHECKING:
    from millpond.backend.bytestore.byte_store_backend import ByteStoreBackend
    from millpond.backend.changes import Change
    from millpond.backend.cleanup import Expiry

__all__ = ["BufferedCellTable", "BufferedMapTable", "end_of_prefix"]

_SMALL = 64
"""The weight in bytes of an entry that holds next to nothing."""


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys with a prefix; None where there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class _BufferedTable:
    """What both tables share: where entries are.

    Attributes:
        swept: up to where the clean-up has come.
    """

    def __init__(self, backend: ByteStoreBackend, family: str, namespaces: KeyCodec) -> None:
        self._backend = backend
        self._family = family
        self._namespaces = namespaces
        self.swept = b""

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """The table's ``sweep``; buffered changes are newer than what is stored."""
        with closing(self._backend.store.scan(self._family, self.swept, None)) as scan:
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
        raise NotImplementedError

    def _is_dirty(self, physical: bytes) -> bool:
        raise NotImplementedError

    def _unreadable(self, physical: bytes, error: Exception) -> Exception:
        return unreadable(self._backend.parameters.operator.label, self._family, physical, error)

    def prepare_namespace(self, namespace: Any) -> Any:
        """The encoded namespace."""
        return self._namespaces.encode(namespace)

    def _address(self, namespace: bytes) -> bytes:
        """The physical key, or the start of it, for the current key."""
        prefix = self._backend.prefix
        if prefix is None:
            raise self._backend.no_key()
        return prefix + namespace


class BufferedCellTable(_BufferedTable, CellTable):
    """Cells over a byte store; the hot path is one dictionary look-up by address."""

    def __init__(
        self,
        backend: ByteStoreBackend,
        family: str,
        namespaces: KeyCodec,
        serializer: TypeSerializer[Any],
    ) -> None:
        super().__init__(backend, family, namespaces)
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
        self._backend.store_reads += 1
        data = self._backend.store.get(self._family, address)
        try:
            value = None if data is None else self._serializer.deserialize(data)
        except Exception as error:
            raise self._unreadable(address, error) from error
        self._backend.make_room(_SMALL if data is None else len(data) + _SMALL)
        self._entries[address] = value
        return value

    @override
    def put(self, namespace: Any, value: Any) -> None:
        address = self._address(namespace)
        if address not in self._dirty:
            self._backend.make_room(self._serializer.weight(value))
            self._dirty.add(address)
        self._entries[address] = value

    @override
    def remove(self, namespace: Any) -> None:
        address = self._address(namespace)
        if address not in self._dirty:
            self._backend.make_room(_SMALL)
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
        """The changes are stored: the buffer is empty."""
        self._entries = {}
        self._dirty = set()


class BufferedMapTable(_BufferedTable, MapTable):
    """Map entries over a byte store, buffered by map and encoded map key."""

    def __init__(
        self,
        backend: ByteStoreBackend,
        family: str,
        namespaces: KeyCodec,
        map_keys: KeyCodec,
        serializer: TypeSerializer[Any],
    ) -> None:
        super().__init__(backend, family, namespaces)
        self._map_keys = map_keys
        self._serializer = serializer
        self._maps: dict[bytes, dict[bytes, Any]] = {}
        self._dirty: set[tuple[bytes, bytes]] = set()

    @override
    def prepare_key(self, key: Any) -> Any:
        return self._map_keys.encode(key)

    def _map(self, address: bytes) -> dict[bytes, Any]:
        try:
            return self._maps[address]
        except KeyError:
            return self._maps.setdefault(address, {})

    @override
    def get(self, namespace: Any, key: Any) -> Any:
        address = self._address(namespace)
        entries = self._map(address)
        try:
            return entries[key]
        except KeyError:
            return self._read(address, key)

    def _read(self, address: bytes, key: bytes) -> Any:
        self._backend.store_reads += 1
        data = self._backend.store.get(self._family, address + key)
        try:
            value = ABSENT if data is None else self._serializer.deserialize(data)
        except Exception as error:
            raise self._unreadable(address + key, error) from error
        self._backend.make_room(_SMALL if data is None else len(data) + _SMALL)
        self._map(address)[key] = value
        return value

    @override
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        self._note(self._address(namespace), key, value, self._serializer.weight(value))

    @override
    def remove(self, namespace: Any, key: Any) -> None:
        self._note(self._address(namespace), key, ABSENT, _SMALL)

    @override
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        self._backend.require_open()
        self._note(place, key, value, self._serializer.weight(value))

    @override
    def remove_at(self, place: Any, key: Any) -> None:
        self._backend.require_open()
        self._note(place, key, ABSENT, _SMALL)

    def _note(self, address: bytes, key: bytes, value: Any, weight: int) -> None:
        if (address, key) not in self._dirty:
            self._backend.make_room(weight)
            self._dirty.add((address, key))
        self._map(address)[key] = value

    def _merged(self, address: bytes) -> Iterator[tuple[bytes, Any]]:
        """Encoded map keys and objects of buffer and store together, safe against changes."""
        buffered = dict.fromkeys(self._maps.get(address, ()))
        deserialize = self._serializer.deserialize
        for chunk in self._backend.chunks(self._family, address):
            maps = self._maps
            for full, data in chunk:
                key = full[len(address) :]
                buffered.pop(key, None)
                value = self._maps.get(address, {}).get(key, data)
                if value is data:
                    # A flush since the chunk was read may have stored another value, or none.
                    unmoved = self._maps is maps
                    try:
                        value = deserialize(data) if unmoved else self._read(address, key)
                    except Exception as error:
                        raise self._unreadable(full, error) from error
                if value is not ABSENT:
                    yield key, value
        for key in buffered:
            entries = self._map(address)
            value = entries[key] if key in entries else self._read(address, key)
            if value is not ABSENT:
                yield key, value

    @override
    def place(self, namespace: Any) -> bytes:
        return self._address(namespace)

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        decode = self._map_keys.decode
        for encoded, value in self._merged(place):
            try:
                key, _ = decode(encoded, 0)
            except Exception as error:
                raise self._unreadable(place + encoded, error) from error
            yield key, value

    @override
    def is_empty(self, namespace: Any) -> bool:
        return next(self._merged(self._address(namespace)), None) is None

    @override
    def clear(self, namespace: Any) -> None:
        address = self._address(namespace)
        while batch := [key for key, _ in islice(self._merged(address), 4096)]:
            for key in batch:
                self.remove(namespace, key)

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        start = self._backend.end_of_namespace(key, self._namespaces)
        address, map_key = key[:start], key[start:]
        loaded = ABSENT if value is None else self._serializer.deserialize(value)
        self._map(address)[map_key] = loaded
        self._dirty.add((address, map_key))

    @override
    def _is_dirty(self, physical: bytes) -> bool:
        start = self._backend.end_of_namespace(physical, self._namespaces)
        return (physical[:start], physical[start:]) in self._dirty

    @override
    def changed_entries(self) -> int:
        return len(self._dirty)

    def changes(self) -> list[Change]:
        """The dirty entries, serialized and sorted."""
        maps, serialize = self._maps, self._serializer.serialize
        changes: list[Change] = []
        for address, key in self._dirty:
            value = maps[address][key]
            changes.append((address + key, None if value is ABSENT else serialize(value)))
        changes.sort(key=lambda change: change[0])
        return changes

    def flushed(self) -> None:
        """The changes are stored: the buffer is empty."""
        self._maps = {}
        self._dirty = set()
