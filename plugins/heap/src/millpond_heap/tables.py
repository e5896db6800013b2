"""Tables in dictionaries: one dictionary for each key group, namespace and state.

The values in a dictionary are the users' objects. The address of an entry is the key itself if the
key codec is exact, i.e. if equal keys have equal bytes. Otherwise the address is the encoded key.
``changed`` contains the addresses of changed entries in the order of the changes. It is None if
there are no change listeners.

A snapshot reads the dictionaries of the table. ``sharing`` knows these dictionaries, and the table
copies each of them before the first write to it. ``sharing`` is None if no snapshot is running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any

from millpond.spi import (
    Amount,
    Change,
    Changes,
    CurrentKey,
    Expiry,
    KeyedBackendParameters,
    StateSize,
)
from millpond.types import KeyCodec, TypeSerializer
from typing_extensions import override


class HeapKey(CurrentKey):
    """The current key. Its address is the key, or the key's bytes if the codec is not exact."""

    def __init__(self, backend: str, parameters: KeyedBackendParameters) -> None:
        super().__init__(backend, parameters)
        self.prepares = not self.codec.exact

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        self.address = key if self.codec.exact else self.codec.encode(key)

    @override
    def addresses(self, keys: list[Any], groups: list[int]) -> list[Any]:
        codec = self.codec
        return keys if codec.exact else codec.encode_many(keys)

    def set_place(self, key_group: int, address: Any) -> None:
        """Set the key group and the address that tables use, without checking them."""
        self.key_group, self.address = key_group, address

    @contextmanager
    def keeping_place(self) -> Iterator[None]:
        """Restore the key group and the address after the ``with`` block, which may change them."""
        before = self.key_group, self.address
        try:
            yield
        finally:
            self.key_group, self.address = before


class Sharing:
    """The dictionaries and objects of a table that a running snapshot may still read.

    Each new snapshot gives the table a new instance, in which all dictionaries and objects are
    shared.
    """

    def __init__(self, groups: dict[int | None, dict[Any, dict[Any, Any]]]) -> None:
        self._shared = {(g, namespace) for g, entries in groups.items() for namespace in entries}
        self._owned: set[tuple[Any, ...]] = set()

    def copy_if_shared(
        self, entries: dict[Any, dict[Any, Any]], group: int | None, namespace: Any
    ) -> None:
        """Copy the dictionary of a namespace before the first write, if a snapshot may read it.

        Args:
            entries: the dictionaries of a key group, by namespace.
            group: the key group.
            namespace: the namespace.
        """
        place = (group, namespace)
        if place in self._shared:
            self._shared.discard(place)
            if namespace in entries:
                entries[namespace] = entries[namespace].copy()

    def claim(self, address: tuple[Any, ...]) -> bool:
        """Mark the object at an address as owned by the table; return whether it was owned."""
        if address in self._owned:
            return True
        self._owned.add(address)
        return False


Groups = dict[int | None, dict[Any, dict[Any, Any]]]


def encoder(codec: KeyCodec) -> Callable[[Any], bytes]:
    """Return a function that converts an address to the bytes of the encoded key."""
    return codec.encode if codec.exact else bytes


_COUNTED = 1_000
"""The maximum number of dictionaries whose sizes are added up for the metrics."""


def total_size(dictionaries: Iterable[Sized], number: int) -> Amount:
    """Return the sum of the sizes of `number` dictionaries, an estimate if there are many."""
    sizes = list(map(len, islice(dictionaries, _COUNTED)))
    if len(sizes) < _COUNTED or number == _COUNTED:
        return Amount(sum(sizes))
    return Amount(round(sum(sizes) * number / _COUNTED), is_exact=False)


class HeapTable:
    """The base class of both kinds of table."""

    def __init__(
        self,
        current: HeapKey,
        namespaces: KeyCodec,
        serializer: TypeSerializer[Any],
        *,
        track_changes: bool,
    ) -> None:
        self.current = current
        self._namespaces = namespaces
        self._serializer = serializer
        self._groups: Groups = {group: {} for group in current.key_group_range}
        self._encode_key = encoder(current.codec)
        self._encode_namespace = encoder(namespaces)
        self.changed: dict[tuple[Any, ...], Any] | None = {} if track_changes else None
        self.sharing: Sharing | None = None
        self._sweeping: Iterator[tuple[Any, ...]] | None = None

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Visit up to `limit` stored values and remove the expired ones; see ``CellTable.sweep``.

        The keys of a key group are listed when the sweep reaches the group.
        """
        if self._sweeping is None:
            self._sweeping = self._all_places()
        current = self.current
        visited = removed = 0
        with current.keeping_place():
            for group, namespace, key, *map_key in islice(self._sweeping, limit):
                visited += 1
                current.set_place(group, key)
                value = self._stored_object(namespace, *map_key)
                if value is None:
                    continue
                kept = expiry.of_object(value)
                if kept is None:
                    removed += 1
                    self.remove(namespace, *map_key)
                elif kept is not value:
                    self.put(namespace, *map_key, kept)
        if visited == limit:
            return visited, removed, False
        self._sweeping = None
        return visited, removed, True

    def _all_places(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over key group, namespace, key and, in a map, map key of each entry.

        The caller may remove entries.
        """
        raise NotImplementedError

    def _stored_object(self, *address: Any) -> Any:
        """Return the object that is stored for the current key, or None."""
        raise NotImplementedError

    def put(self, *entry: Any) -> None:
        """Store an object for a namespace and, in a map table, a map key."""
        raise NotImplementedError

    def remove(self, *address: Any) -> None:
        """Remove the object of a namespace and, in a map table, of a map key."""
        raise NotImplementedError

    def load(self, key: bytes, value: bytes | None) -> None:
        """Put a portable row into the table, or remove the entry if `value` is None."""
        raise NotImplementedError

    def load_all(self, rows: Changes) -> None:
        """Put portable rows into the table. After an error, some of them may be in the table."""
        for key, value in rows:
            self.load(key, value)

    def count(self) -> int:
        """Return the number of entries."""
        raise NotImplementedError

    def size(self) -> StateSize:
        """Return the number of keys and entries, of which only a part is counted."""
        maps = (by_key for group in self._groups.values() for by_key in group.values())
        keys = total_size(maps, sum(map(len, self._groups.values())))
        return StateSize(keys, keys)

    def changed_entries(self) -> int:
        """Return the number of entries that have changed since the last flush.

        Without listeners, changes are not tracked. The result is then a hundredth of all entries.
        """
        return self.count() // 100 if self.changed is None else len(self.changed)

    def freeze(self) -> Groups:
        """Return the dictionaries for a snapshot to read. From now on the table shares them."""
        self.sharing = Sharing(self._groups)
        return {group: dict(entries) for group, entries in self._groups.items()}

    def thaw(self) -> None:
        """End the sharing of dictionaries, because no snapshot reads them any more."""
        self.sharing = None

    def prepare_namespace(self, namespace: Any) -> Any:
        """Return the namespace itself, or its bytes if the codec of namespaces is not exact."""
        codec = self._namespaces
        return namespace if codec.exact else codec.encode(namespace)

    def _entries(self) -> dict[Any, dict[Any, Any]]:
        """Return the dictionaries of the current key's group, by namespace."""
        try:
            return self._groups[self.current.key_group]
        except KeyError:
            raise self.current.no_key_error() from None

    def _writable(self, namespace: Any) -> dict[Any, dict[Any, Any]]:
        """Return the dictionaries of the current key's group, by namespace, for a write.

        If a snapshot reads the dictionary of `namespace`, the table first replaces that dictionary
        by a copy.
        """
        entries = self._entries()
        sharing = self.sharing
        if sharing is not None:
            sharing.copy_if_shared(entries, self.current.key_group, namespace)
        return entries

    def _discard(self, namespace: Any) -> Any:
        entries = self._writable(namespace)
        by_key = entries.get(namespace)
        if by_key is None:
            return None
        removed = by_key.pop(self.current.address, None)
        if not by_key:
            del entries[namespace]
        return removed

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the key and namespace of each entry. The caller may change the table."""
        current = self.current
        for group in self._groups.values():
            for namespace, by_key in list(group.items()):
                plain = self._plain(self._namespaces, namespace)
                for key in list(by_key):
                    yield self._plain(current.codec, key), plain

    @staticmethod
    def _plain(codec: KeyCodec, address: Any) -> Any:
        return address if codec.exact else codec.decode(address, 0)[0]

    def _physical(self, group: int, namespace: Any, key: Any) -> bytes:
        prefix = self.current.group_prefixes[group]
        return prefix + self._encode_key(key) + self._encode_namespace(namespace)

    def _parse(self, physical: bytes) -> tuple[int, Any, Any, int]:
        """Return the parts of a physical key.

        The result contains the key group, the namespace, the key and the position of the map key.
        """
        current = self.current
        layout, keys = current.layout, current.codec
        key, start, namespace, end = layout.parse(physical, keys, self._namespaces)
        if not keys.exact:
            key = physical[layout.group_bytes : start]
        if not self._namespaces.exact:
            namespace = physical[start:end]
        return layout.group_of(physical), namespace, key, end

    def changes(self) -> Sequence[Change]:
        """Return the changed entries as serialized rows, sorted by key."""
        raise NotImplementedError

    def flushed(self) -> None:
        """Forget the changes, because the listeners have been called with them."""
        self.changed = {}
