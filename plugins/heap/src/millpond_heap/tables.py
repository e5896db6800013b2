"""Tables on dictionaries: one dictionary per key group, namespace and state.

Entries are the users' objects. Their address is the key itself where Python's equality agrees
with the key codec, else the encoded key. ``changed`` collects the addresses of changed entries
for the change listeners; without listeners it is None and costs nothing.

A frozen table shares its dictionaries with the view that a snapshot reads. ``sharing`` tells
which ones; the table copies each before the first write to it. Without a snapshot it is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from millpond.backend.changes import Change
from millpond.backend.expiry import Expiry
from millpond.backend.tables import CellTable
from millpond.types import KeyCodec, TypeSerializer
from typing_extensions import override

from millpond_heap.heap_key import HeapKey
from millpond_heap.sharing import Sharing

__all__ = ["Groups", "HeapCellTable", "HeapTable", "encoder"]

Groups = dict[int | None, dict[Any, dict[Any, Any]]]


def encoder(codec: KeyCodec) -> Callable[[Any], bytes]:
    """The function from an address to its bytes; with an inexact codec, addresses are bytes."""
    return codec.encode if codec.exact else bytes


class HeapTable:
    """The base of both tables: addresses, loading and reading of rows."""

    def __init__(
        self,
        current: HeapKey,
        namespaces: KeyCodec,
        serializer: TypeSerializer[Any],
        *,
        track_changes: bool,
    ) -> None:
        self._current = current
        self._namespaces = namespaces
        self._serializer = serializer
        self._groups: Groups = {group: {} for group in current.key_group_range}
        self._encode_key = encoder(current.codec)
        self._encode_namespace = encoder(namespaces)
        self.changed: set[tuple[Any, ...]] | None = set() if track_changes else None
        self.sharing: Sharing | None = None
        self._sweeping: Iterator[tuple[Any, ...]] | None = None

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """See ``CellTable.sweep``; the sweep lists a key group's keys when it reaches the group."""
        if self._sweeping is None:
            self._sweeping = self._everything()
        current = self._current
        visited = removed = 0
        with current.turned_to(None, None):
            for group, namespace, key, *map_key in islice(self._sweeping, limit):
                visited += 1
                current.key_group, current.address = group, key
                value = self._peek(namespace, *map_key)
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

    def _everything(self) -> Iterator[tuple[Any, ...]]:
        """Key group, namespace, key (and map key) of each entry; entries may go meanwhile."""
        raise NotImplementedError

    def _peek(self, *address: Any) -> Any:
        """The stored object of the current key, or None."""
        raise NotImplementedError

    def put(self, *entry: Any) -> None:
        """Store an object under a namespace (and a map key, in a map table)."""
        raise NotImplementedError

    def remove(self, *address: Any) -> None:
        """Remove what is stored under a namespace (and a map key, in a map table)."""
        raise NotImplementedError

    def count(self) -> int:
        """The number of entries."""
        raise NotImplementedError

    def changed_entries(self) -> int:
        """See ``CellTable.changed_entries``; without listeners, a hundredth of all entries."""
        return self.count() // 100 if self.changed is None else len(self.changed)

    def freeze(self) -> Groups:
        """Return the dictionaries for a snapshot to read; from now on they are shared."""
        self.sharing = Sharing(self._groups)
        return {group: dict(entries) for group, entries in self._groups.items()}

    def thaw(self) -> None:
        """End the sharing: no snapshot reads the dictionaries any more."""
        self.sharing = None

    def prepare_namespace(self, namespace: Any) -> Any:
        """The namespace itself, or its encoding where Python's equality is too coarse."""
        codec = self._namespaces
        return namespace if codec.exact else codec.encode(namespace)

    def _entries(self) -> dict[Any, dict[Any, Any]]:
        """The entries of the current key's group, by namespace."""
        try:
            return self._groups[self._current.key_group]
        except KeyError:
            raise self._current.missing() from None

    def _writable(self, namespace: Any) -> dict[Any, dict[Any, Any]]:
        """The entries of the current key's group; the caller may change those of the namespace."""
        entries = self._entries()
        sharing = self.sharing
        if sharing is not None:
            sharing.part(entries, self._current.key_group, namespace)
        return entries

    def _discard(self, namespace: Any) -> Any:
        entries = self._writable(namespace)
        by_key = entries.get(namespace)
        if by_key is None:
            return None
        removed = by_key.pop(self._current.address, None)
        if not by_key:
            del entries[namespace]
        return removed

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        """Key and namespace of each entry, from a copy: the caller may change the table."""
        current = self._current
        for group in self._groups.values():
            for namespace, by_key in list(group.items()):
                plain = self._plain(self._namespaces, namespace)
                for key in list(by_key):
                    yield self._plain(current.codec, key), plain

    @staticmethod
    def _plain(codec: KeyCodec, address: Any) -> Any:
        return address if codec.exact else codec.decode(address, 0)[0]

    def _physical(self, group: int, namespace: Any, key: Any) -> bytes:
        prefix = self._current.group_prefixes[group]
        return prefix + self._encode_key(key) + self._encode_namespace(namespace)

    def _parse(self, physical: bytes) -> tuple[int, Any, Any, int]:
        """Key group, namespace, key, and where the map key begins."""
        current = self._current
        layout, keys = current.layout, current.codec
        key, start, namespace, end = layout.parse(physical, keys, self._namespaces)
        if not keys.exact:
            key = physical[layout.group_bytes : start]
        if not self._namespaces.exact:
            namespace = physical[start:end]
        return layout.group_of(physical), namespace, key, end

    def changes(self) -> list[Change]:
        """The changed entries, serialized and sorted."""
        changes = (self._change(address) for address in self.changed or ())
        return sorted(changes, key=lambda row: row[0])

    def flushed(self) -> None:
        """Forget the changes: the listeners know them."""
        self.changed = set()

    def _change(self, address: tuple[Any, ...]) -> Change:
        raise NotImplementedError


class HeapCellTable(HeapTable, CellTable):
    """Cells in dictionaries."""

    @override
    def get(self, namespace: Any) -> Any:
        current = self._current
        try:
            by_key = self._groups[current.key_group].get(namespace)
        except KeyError:
            raise current.missing() from None
        return None if by_key is None else by_key.get(current.address)

    @override
    def _everything(self) -> Iterator[tuple[Any, ...]]:
        for group, entries in self._groups.items():
            for namespace in list(entries):
                for key in list(entries.get(namespace, ())):
                    yield group, namespace, key

    @override
    def _peek(self, *address: Any) -> Any:
        return self.get(*address)

    @override
    def get_for_update(self, namespace: Any) -> Any:
        value = self.get(namespace)
        sharing, current = self.sharing, self._current
        if sharing is None or value is None:
            return value
        owned = sharing.take((current.key_group, namespace, current.address))
        return value if owned else list(value)

    @override
    def put(self, namespace: Any, value: Any) -> None:
        current = self._current
        entries = self._writable(namespace)
        try:
            entries[namespace][current.address] = value
        except KeyError:
            entries[namespace] = {current.address: value}
        if self.changed is not None:
            self.changed.add((current.key_group, namespace, current.address))

    @override
    def remove(self, namespace: Any) -> None:
        current = self._current
        if self._discard(namespace) is not None and self.changed is not None:
            self.changed.add((current.key_group, namespace, current.address))

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        group, namespace, address, _ = self._parse(key)
        entries = self._groups[group]
        if value is not None:
            entries.setdefault(namespace, {})[address] = self._serializer.deserialize(value)
        elif namespace in entries:
            entries[namespace].pop(address, None)
            if not entries[namespace]:
                del entries[namespace]

    def rows(self, groups: Groups, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Physical key and serialized value of the entries of a frozen group."""
        serialize = self._serializer.serialize
        for namespace, by_key in groups[group].items():
            for key, value in by_key.items():
                yield self._physical(group, namespace, key), serialize(value)

    @override
    def count(self) -> int:
        """The number of entries."""
        return sum(len(by_key) for group in self._groups.values() for by_key in group.values())

    @override
    def _change(self, address: tuple[Any, ...]) -> Change:
        group, namespace, key = address
        value = self._groups[group].get(namespace, {}).get(key)
        data = None if value is None else self._serializer.serialize(value)
        return self._physical(group, namespace, key), data
