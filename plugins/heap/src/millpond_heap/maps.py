"""Map tables in dictionaries: one dictionary for each key group, namespace, state and key."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from millpond.backend import SortedCursor, SortedEntries
from millpond.spi import ABSENT, Change, KeySpan, MapTable, SortedMapTable, StateSize
from millpond.types import KeyCodec, TypeSerializer
from typing_extensions import override

from millpond_heap.tables import Groups, HeapKey, HeapTable, encoder, total_size


class HeapMapTable(HeapTable, MapTable):
    """A table with a dictionary of map entries for each key and namespace."""

    _new_map: type[dict[Any, Any]] = dict

    def __init__(
        self,
        current: HeapKey,
        namespaces: KeyCodec,
        map_keys: KeyCodec,
        serializer: TypeSerializer[Any],
        *,
        track_changes: bool,
    ) -> None:
        super().__init__(current, namespaces, serializer, track_changes=track_changes)
        self._map_keys = map_keys
        self._encodes_keys = not map_keys.exact
        self._encode_map_key = encoder(map_keys)

    @override
    def _all_places(self) -> Iterator[tuple[Any, ...]]:
        for group, entries in self._groups.items():
            for namespace in list(entries):
                for key in list(entries.get(namespace, ())):
                    for map_key in list(entries.get(namespace, {}).get(key, ())):
                        yield group, namespace, key, map_key

    @override
    def _stored_object(self, *address: Any) -> Any:
        value = self.get(*address)
        return None if value is ABSENT else value

    @override
    def prepare_key(self, key: Any) -> Any:
        return self._map_keys.encode(key) if self._encodes_keys else key

    def _map(self, namespace: Any) -> dict[Any, Any]:
        by_key = self._entries().get(namespace)
        found = None if by_key is None else by_key.get(self.current.address)
        return {} if found is None else found

    def _copy_map_if_shared(self, by_key: dict[Any, dict[Any, Any]], namespace: Any) -> None:
        """Copy the map of the current key if a snapshot may still read it."""
        sharing, current = self.sharing, self.current
        if sharing is None or current.address not in by_key:
            return
        if not sharing.claim((current.key_group, namespace, current.address)):
            by_key[current.address] = by_key[current.address].copy()

    @override
    def get(self, namespace: Any, key: Any) -> Any:
        current = self.current
        try:
            return self._groups[current.key_group][namespace][current.address].get(key, ABSENT)
        except KeyError:
            self._entries()  # raises an error if there is no current key
            return ABSENT

    @override
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        current = self.current
        by_key = self._writable(namespace).setdefault(namespace, {})
        self._copy_map_if_shared(by_key, namespace)
        entries = by_key.get(current.address)
        if entries is None:
            entries = by_key[current.address] = self._new_map()
        entries[key] = value
        if self.changed is not None:
            self.changed[current.key_group, namespace, current.address, key] = None

    @override
    def remove(self, namespace: Any, key: Any) -> None:
        current = self.current
        by_key = self._writable(namespace).get(namespace, {})
        self._copy_map_if_shared(by_key, namespace)
        entries = by_key.get(current.address, {})
        if entries.pop(key, ABSENT) is ABSENT:
            return
        if self.changed is not None:
            self.changed[current.key_group, namespace, current.address, key] = None
        if not entries:
            self._discard(namespace)

    @override
    def place(self, namespace: Any) -> Any:
        current = self.current
        self._entries()  # raises an error if there is no current key
        return current.key_group, namespace, current.address

    def _map_at(self, place: tuple[int, Any, Any]) -> dict[Any, Any]:
        group, namespace, address = place
        entries: dict[Any, Any] = self._groups[group].get(namespace, {}).get(address, {})
        return entries

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over the map keys and values of the map at `place`.

        The map is looked up for each entry, because a write during a snapshot replaces it by a
        copy.
        """
        group, namespace, address = place
        groups = self._groups
        nothing: dict[Any, Any] = {}
        for key in list(self._map_at(place)):
            value = groups[group].get(namespace, nothing).get(address, nothing).get(key, ABSENT)
            if value is not ABSENT:
                yield self._plain(self._map_keys, key), value

    @override
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        self.current.require_open()
        with self.current.keeping_place():
            self.current.set_place(place[0], place[2])
            self.put(place[1], key, value)

    @override
    def remove_at(self, place: Any, key: Any) -> None:
        self.current.require_open()
        with self.current.keeping_place():
            self.current.set_place(place[0], place[2])
            self.remove(place[1], key)

    @override
    def is_empty(self, namespace: Any) -> bool:
        return not self._map(namespace)

    @override
    def clear(self, namespace: Any) -> None:
        current = self.current
        removed = self._discard(namespace)
        if removed and self.changed is not None:
            address = (current.key_group, namespace, current.address)
            self.changed.update(((*address, key), None) for key in removed)

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        group, namespace, address, start = self._parse(key)
        map_key = key[start:] if self._encodes_keys else self._map_keys.decode(key, start)[0]
        by_key = self._groups[group].setdefault(namespace, {})
        if address not in by_key:
            by_key[address] = self._new_map()
        entries = by_key[address]
        if value is not None:
            entries[map_key] = self._serializer.deserialize(value)
            return
        entries.pop(map_key, None)
        if not entries:
            del by_key[address]
            if not by_key:
                del self._groups[group][namespace]

    def rows(self, groups: Groups, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the physical key and the serialized value of each entry of a key group.

        `groups` is the result of ``freeze``.
        """
        serialize = self._serializer.serialize
        for namespace, by_key in groups[group].items():
            for key, entries in by_key.items():
                prefix = self._physical(group, namespace, key)
                for map_key, value in entries.items():
                    yield prefix + self._encode_map_key(map_key), serialize(value)

    @override
    def count(self) -> int:
        """Return the number of map entries."""
        return sum(
            len(entries)
            for group in self._groups.values()
            for by_key in group.values()
            for entries in by_key.values()
        )

    @override
    def size(self) -> StateSize:
        keys = super().size().keys
        maps = (
            entries
            for group in self._groups.values()
            for by_key in group.values()
            for entries in by_key.values()
        )
        return StateSize(keys, None if keys is None else total_size(maps, keys.number))

    @override
    def changes(self) -> list[Change]:
        changes: list[Change] = []
        for group, namespace, key, map_key in self.changed or ():
            value = self._groups[group].get(namespace, {}).get(key, {}).get(map_key, ABSENT)
            physical = self._physical(group, namespace, key) + self._encode_map_key(map_key)
            row = None if value is ABSENT else self._serializer.serialize(value)
            changes.append((physical, row))
        return sorted(changes, key=itemgetter(0))


class HeapSortedMapTable(HeapMapTable, SortedMapTable):
    """A table with a sorted map for each key and namespace, ordered by the encoded map keys.

    So the order is the same as in other backends. This also holds for NaN, which has no order in
    Python, and for None as a part of a key.
    """

    _new_map = SortedEntries

    def __init__(self, *arguments: Any, track_changes: bool) -> None:
        super().__init__(*arguments, track_changes=track_changes)
        self._encodes_keys = True
        self._encode_map_key = bytes

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        return self.range_at(place, KeySpan())

    @override
    def range_at(self, place: Any, span: KeySpan) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries in a range of the map at `place`.

        The map is looked up for each entry, because a write during a snapshot replaces it by a
        copy.
        """
        group, namespace, address = place
        cursor, decode = SortedCursor(span), self._map_keys.decode
        while True:
            entries: Any = self._groups[group].get(namespace, {}).get(address)
            key = cursor.peek(entries)
            if key is None:
                return
            cursor.pass_by(key)
            yield decode(key, 0)[0], entries[key]
