"""Map tables over a byte store, which buffer entries until the next flush.

The address of a map is the beginning of the physical keys of its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.buffered_cells import BufferedTable
from millpond.backend.bytestore.write_buffer import EncodedKey, WriteBuffer
from millpond.spi.keys import end_of_prefix
from millpond.spi.portable_rows import Changes
from millpond.spi.tables import ABSENT, MapTable
from millpond.types import KeyCodec, TypeSerializer


class BufferedMapTable(BufferedTable, MapTable):
    """A map table over a byte store, which buffers entries by map address and encoded map key.

    ``_maps`` contains the existing entries, and ``_absent`` the keys that are known to be missing.
    So a program that repeatedly puts and removes entries, such as a queue, never visits removed
    entries. If a program removes the entries of a map from the beginning, ``_drained`` contains the
    physical key up to which all stored entries were removed. They are then not scanned again. The
    maps in ``_cleared`` have no stored entries.
    """

    def __init__(
        self,
        current: EncodedKey,
        buffer: WriteBuffer,
        family: str,
        namespaces: KeyCodec,
        map_keys: KeyCodec,
        serializer: TypeSerializer[Any],
    ) -> None:
        super().__init__(current, buffer, family, namespaces)
        self._map_keys = map_keys
        self._serializer = serializer
        self._maps: dict[bytes, dict[bytes, Any]] = {}
        self._absent: dict[bytes, set[bytes]] = {}
        self._sized = serializer.sized
        self._new_map: type[dict[bytes, Any]] = dict
        self._dirty: dict[tuple[bytes, bytes], int] = {}  # changed entries: the bytes they count
        self._rows: dict[tuple[bytes, bytes], bytes] = {}  # only for values that may be large
        self._drained: dict[bytes, bytes] = {}
        self._cleared: set[bytes] = set()

    @override
    def prepare_key(self, key: Any) -> Any:
        return self._map_keys.encode(key)

    @override
    def get(self, namespace: Any, key: Any) -> Any:
        return self._value(self._address(namespace), key)

    def _value(self, address: bytes, key: bytes) -> Any:
        """Return the current value of an entry, or ``ABSENT``."""
        entries = self._maps.get(address)
        if entries is not None and key in entries:
            return entries[key]
        known = address in self._absent and key in self._absent[address]
        return ABSENT if known else self._read(address, key)

    def _hold(self, address: bytes, key: bytes, value: Any) -> None:
        """Put the newest value of an entry, or ``ABSENT``, into the buffer."""
        entries = self._maps.get(address)
        if entries is None:
            entries = self._maps[address] = self._new_map()
        if value is ABSENT:
            entries.pop(key, None)
            self._absent.setdefault(address, set()).add(key)
            return
        entries[key] = value
        if address in self._absent:
            self._absent[address].discard(key)

    def _read(self, address: bytes, key: bytes) -> Any:
        self._buffer.reads += 1
        data = self._buffer.store.get(self._family, address + key)
        try:
            value = ABSENT if data is None else self._serializer.deserialize(data)
        except Exception as error:
            raise self._unreadable(address + key, error) from error
        self._buffer.make_room(len(key) + self._buffer.cost_of(data))
        self._hold(address, key, value)
        return value

    @override
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        self._note(self._address(namespace), key, value)

    @override
    def remove(self, namespace: Any, key: Any) -> None:
        self._note(self._address(namespace), key, ABSENT)

    @override
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        self.current.require_open()
        self._note(place, key, value)

    @override
    def remove_at(self, place: Any, key: Any) -> None:
        self.current.require_open()
        self._note(place, key, ABSENT)

    def _note(self, address: bytes, key: bytes, value: Any) -> None:
        place, buffer = (address, key), self._buffer
        row = self._serializer.serialize(value) if self._sized and value is not ABSENT else None
        cost = len(key) + (buffer.entry_cost if row is None else buffer.cost_of(row))
        more = cost - self._dirty.get(place, 0)
        if buffer.room < more:
            buffer.flush()
            more = cost
        buffer.room -= more
        self._dirty[place] = cost
        if row is not None:
            self._rows[place] = row
        self._hold(address, key, value)

    def _merged(self, address: bytes) -> Iterator[tuple[bytes, Any]]:
        """Iterate over encoded map keys and values; the caller may change entries at the same time.

        The iteration yields stored entries first, in chunks, and then the entries that exist only
        in the buffer. A buffered value replaces a stored one. A chunk is valid as long as ``_maps``
        is the same object. A flush replaces ``_maps``, and then each entry is read again.

        ``buffered`` contains the buffered keys that were not yielded yet, so no key is yielded
        twice. The keys are listed only when the caller asks for a second entry. So a caller that
        always takes only the first entry, such as a queue, does not wait for the list.
        """
        entries = self._maps.get(address, {})  # a flush does not change this object
        buffered: dict[bytes, None] | None = None
        deserialize = self._serializer.deserialize
        for chunk in self._chunks(address):
            maps = self._maps
            for full, data in chunk:
                key = full[len(address) :]
                try:
                    # A flush since the chunk was read may have changed or removed the stored value.
                    known = key in maps.get(address, ()) or key in self._absent.get(address, ())
                    unread = self._maps is maps and not known
                    value = deserialize(data) if unread else self._value(address, key)
                except Exception as error:
                    raise self._unreadable(full, error) from error
                if value is not ABSENT:
                    yield key, value
                    buffered = dict.fromkeys(entries) if buffered is None else buffered
                    buffered.pop(key, None)
                elif buffered is None:
                    self._drained[address] = full
        if buffered is None and entries:
            first = next(iter(entries))
            yield first, entries[first]
            buffered = dict.fromkeys(entries)
            buffered.pop(first, None)
        for key in buffered or ():
            value = self._value(address, key)
            if value is not ABSENT:
                yield key, value

    def _chunks(self, address: bytes) -> Iterable[list[tuple[bytes, bytes]]]:
        """Iterate over lists of a map's stored rows, without rows that are known to be removed."""
        if address in self._cleared:
            self.current.require_open()
            return ()
        start = self._drained.get(address, address)
        return self._buffer.chunks(self._family, start, end_of_prefix(address))

    @override
    def place(self, namespace: Any) -> bytes:
        return self._address(namespace)

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        return self._decoded(place, self._merged(place))

    def _decoded(
        self, place: bytes, entries: Iterator[tuple[bytes, Any]]
    ) -> Iterator[tuple[Any, Any]]:
        """Iterate over `entries` with decoded map keys."""
        decode = self._map_keys.decode
        for encoded, value in entries:
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
        for key, _ in self._merged(address):
            self.remove_at(address, key)
        self._cleared.add(address)

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        address, map_key = self._buffer.split(key, self._namespaces)
        loaded = ABSENT if value is None else self._serializer.deserialize(value)
        self._hold(address, map_key, loaded)
        self._dirty.setdefault((address, map_key), self._buffer.entry_cost)
        if self._sized and value is not None:
            self._rows[address, map_key] = value

    @override
    def _is_dirty(self, physical: bytes) -> bool:
        return self._buffer.split(physical, self._namespaces) in self._dirty

    @override
    def changed_entries(self) -> int:
        return len(self._dirty)

    def changes(self) -> Changes:
        """Return the changed entries as serialized rows, sorted by key."""
        maps, serialize = self._maps, self._serializer.serialize
        keys: list[bytes] = []
        rows: list[bytes | None] = []
        for place in self._dirty:
            address, key = place
            keys.append(address + key)
            value = maps[address].get(key, ABSENT)
            if value is ABSENT:
                rows.append(None)
            else:
                rows.append(self._rows[place] if self._sized else serialize(value))
        return Changes(keys, rows).in_order()

    def flushed(self) -> None:
        """Empty the buffer, because the changes are stored."""
        self._maps = {}
        self._absent = {}
        self._dirty = {}
        self._rows = {}
        self._drained = {}
        self._cleared = set()
