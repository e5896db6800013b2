"""Tables on dictionaries: one dictionary per key group, namespace and state.

Entries are the users' objects. Their address is the key itself if Python's equality agrees
with the key codec, else the encoded key. ``changed`` collects the addresses of changed entries
for the change listeners, in their order; without listeners it is None.

A frozen table shares its dictionaries with the view that a snapshot reads. ``sharing`` lists
them; the table copies each before the first write to it. Without a snapshot it is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from millpond.spi import Change, Changes, CurrentKey, Expiry, KeyedBackendParameters
from millpond.types import KeyCodec, TypeSerializer
from typing_extensions import override


class HeapKey(CurrentKey):
    """The current key. Its address is the key, or its bytes if Python calls distinct keys equal."""

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
        """Set the key group and the address that the tables use, without a check."""
        self.key_group, self.address = key_group, address

    @contextmanager
    def keeping_place(self) -> Iterator[None]:
        """Restore key group and address after the ``with`` block, which may call ``set_place``."""
        before = self.key_group, self.address
        try:
            yield
        finally:
            self.key_group, self.address = before


class Sharing:
    """The dictionaries and objects of a table that a running snapshot may still read.

    Each freeze gives the table a new Sharing. Everything counts as shared again, also the copies
    that the table has made.
    """

    def __init__(self, groups: dict[int | None, dict[Any, dict[Any, Any]]]) -> None:
        self._shared = {(g, namespace) for g, entries in groups.items() for namespace in entries}
        self._owned: set[tuple[Any, ...]] = set()

    def copy_if_shared(
        self, entries: dict[Any, dict[Any, Any]], group: int | None, namespace: Any
    ) -> None:
        """Copy the entries of a namespace before the first write, if a snapshot reads them."""
        place = (group, namespace)
        if place in self._shared:
            self._shared.discard(place)
            if namespace in entries:
                entries[namespace] = entries[namespace].copy()

    def claim(self, address: tuple[Any, ...]) -> bool:
        """Let the table own the mutable object at an address; return whether it already did."""
        if address in self._owned:
            return True
        self._owned.add(address)
        return False


Groups = dict[int | None, dict[Any, dict[Any, Any]]]


def encoder(codec: KeyCodec) -> Callable[[Any], bytes]:
    """Return the function that turns an address into bytes."""
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
        """See ``CellTable.sweep``; the sweep lists a key group's keys when it reaches the group."""
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
        """Iterate over key group, namespace, key (and map key); the caller may remove entries."""
        raise NotImplementedError

    def _stored_object(self, *address: Any) -> Any:
        """Return the stored object of the current key, or None."""
        raise NotImplementedError

    def put(self, *entry: Any) -> None:
        """Store an object under a namespace (and a map key, in a map table)."""
        raise NotImplementedError

    def remove(self, *address: Any) -> None:
        """Remove the object under a namespace (and a map key, in a map table)."""
        raise NotImplementedError

    def load(self, key: bytes, value: bytes | None) -> None:
        """Put a portable row into the table or, for None, remove it."""
        raise NotImplementedError

    def load_all(self, rows: Changes) -> None:
        """Put portable rows into the table; an error may leave some of them there."""
        for key, value in rows:
            self.load(key, value)

    def count(self) -> int:
        """Return the number of entries."""
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
        """Return the namespace itself, or its encoding if Python calls distinct ones equal."""
        codec = self._namespaces
        return namespace if codec.exact else codec.encode(namespace)

    def _entries(self) -> dict[Any, dict[Any, Any]]:
        """Return the entries of the current key's group, by namespace."""
        try:
            return self._groups[self.current.key_group]
        except KeyError:
            raise self.current.no_key_error() from None

    def _writable(self, namespace: Any) -> dict[Any, dict[Any, Any]]:
        """Return the entries of the current key's group; the caller may change them."""
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
        """Iterate over key and namespace of each entry; the caller may change the table."""
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
        """Return key group, namespace, key, and the position of the map key."""
        current = self.current
        layout, keys = current.layout, current.codec
        key, start, namespace, end = layout.parse(physical, keys, self._namespaces)
        if not keys.exact:
            key = physical[layout.group_bytes : start]
        if not self._namespaces.exact:
            namespace = physical[start:end]
        return layout.group_of(physical), namespace, key, end

    def changes(self) -> Sequence[Change]:
        """Return the changed entries, serialized and sorted."""
        raise NotImplementedError

    def flushed(self) -> None:
        """Forget the changes: the listeners know them."""
        self.changed = {}
