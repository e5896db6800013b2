"""Cell tables in dictionaries: one dictionary for each key group, namespace and state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import countOf, itemgetter
from typing import Any, TypeAlias

from millpond.spi import APPENDED, CellTable, Changes, Held, ListSerializer, SubtaskKeys, serialized
from millpond.types import VOID_NAMESPACE, KeyCodec, TypeSerializer
from millpond.types.key_codecs import VoidKeyCodec
from typing_extensions import override

from millpond_heap.tables import Groups, HeapKey, HeapTable

Changed: TypeAlias = dict[Any, int | None] | None
_NOWHERE: Any = object()
_NOTHING: dict[Any, Any] = {}


class HeapCellTable(HeapTable, CellTable):
    """A table in dictionaries with at most one value for each key and namespace.

    If a snapshot still reads a dictionary, the first write replaces the dictionary by a copy.
    ``_held_within`` refers to the dictionaries that have been written since the last flush. With
    it, each further write takes one look-up instead of three.

    ``changed`` contains the changed keys by key group and namespace. The value for a key is the
    number of elements that were appended to its list, or None if the whole value is new.
    """

    def __init__(
        self,
        current: HeapKey,
        namespaces: KeyCodec,
        serializer: TypeSerializer[Any],
        *,
        track_changes: bool,
    ) -> None:
        super().__init__(current, namespaces, serializer, track_changes=track_changes)
        self._listed = isinstance(serializer, ListSerializer)
        self._held_within: dict[Any, Held] = {}
        self._release_held()

    def _release_held(self) -> None:
        """Forget the remembered dictionaries. Value states that share them call ``hold`` again."""
        for held in self._held_within.values():
            held.clear()
        self._held_within = {}
        self._held: Held = {}
        self._within: Any = _NOWHERE

    @override
    def get(self, namespace: Any) -> Any:
        current = self.current
        held = self._held if namespace is self._within else self._held_within.get(namespace)
        if held is not None:
            found = held.get(current.key_group)
            if found is not None:
                return found[0].get(current.address)
        try:
            by_key = self._groups[current.key_group].get(namespace)
        except KeyError:
            raise current.no_key_error() from None
        return None if by_key is None else by_key.get(current.address)

    @override
    def put(self, namespace: Any, value: Any) -> None:
        current = self.current
        held = self._held if namespace is self._within else self._held_within.get(namespace)
        found = None if held is None else held.get(current.key_group)
        own, changed_keys = found or self._hold(namespace)
        address = current.address
        own[address] = value
        if changed_keys is not None:
            changed_keys[address] = None

    @override
    def hold(self, namespace: Any) -> Held:
        if type(self) is not HeapCellTable:  # a derived class may override ``get``
            return {}
        self._hold(namespace)
        return self._held

    def _hold(self, namespace: Any) -> tuple[dict[Any, Any], Changed]:
        """Return and remember the dictionaries that a write for the current key changes.

        These are the dictionary of values and the dictionary of changed keys.
        """
        held = self._held_within.setdefault(namespace, {})
        group = self.current.key_group
        found = held.get(group)
        if found is None:
            own = self._writable(namespace).setdefault(namespace, {})
            found = held[group] = own, self._changes_of(group, namespace)
        self._held, self._within = held, namespace
        return found

    def _changes_of(self, group: int | None, namespace: Any) -> Changed:
        """Return the changed keys of a key group and namespace, or None without listeners."""
        return None if self.changed is None else self.changed.setdefault((group, namespace), {})

    @override
    def _all_places(self) -> Iterator[tuple[Any, ...]]:
        for group, entries in self._groups.items():
            for namespace in list(entries):
                for key in list(entries.get(namespace, ())):
                    yield group, namespace, key

    @override
    def _stored_object(self, *address: Any) -> Any:
        return self.get(*address)

    @override
    def append(self, namespace: Any, values: list[Any]) -> None:
        stored = self.get(namespace)
        if stored is None:
            self.put(namespace, values)
            return
        current, sharing = self.current, self.sharing
        changed_keys = self._changes_of(current.key_group, namespace)
        before = 0 if changed_keys is None else changed_keys.get(current.address, 0)
        if sharing is None:  # a put is not needed: read and append take 1.4 µs instead of 1.6
            stored += values
        else:
            if not sharing.claim((current.key_group, namespace, current.address)):
                stored = list(stored)
            stored += values
            self.put(namespace, stored)
        if changed_keys is not None and before is not None:
            changed_keys[current.address] = before + len(values)

    @override
    def remove(self, namespace: Any) -> None:
        current = self.current
        held = self._held_within.get(namespace)
        if held is not None:
            held.pop(current.key_group, None)
            if not held:  # otherwise the namespaces of old windows would remain until a flush
                del self._held_within[namespace]
        if self._discard(namespace) is None:
            return
        changed_keys = self._changes_of(current.key_group, namespace)
        if changed_keys is not None:
            changed_keys[current.address] = None

    @override
    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        """Return the value of each key.

        The keys of a frame are sorted by key group. So each run of keys in one group is read by a
        loop in C.
        """
        found: list[Any] = []
        addresses = keys.addresses
        for group, start, end in keys.runs:
            by_key = self._groups[group].get(namespace, _NOTHING)
            found += map(by_key.get, addresses[start:end])
        return found

    @override
    def put_many(self, namespace: Any, keys: SubtaskKeys, values: list[Any]) -> None:
        if type(None) in set(map(type, values)):
            super().put_many(namespace, keys, values)
            return
        self._release_held()
        addresses, sharing = keys.addresses, self.sharing
        for group, start, end in keys.runs:
            part, entries = addresses[start:end], self._groups[group]
            if sharing is not None:
                sharing.copy_if_shared(entries, group, namespace)
            entries.setdefault(namespace, {}).update(zip(part, values[start:end], strict=True))
            changed_keys = self._changes_of(group, namespace)
            if changed_keys is not None:
                changed_keys.update(dict.fromkeys(part))

    @override
    def freeze(self) -> Groups:
        self._release_held()
        return super().freeze()

    @override
    def flushed(self) -> None:
        self._release_held()
        super().flushed()

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        self._release_held()
        group, namespace, address, _ = self._parse(key)
        entries = self._groups[group]
        if value is not None and self._appends(value):
            by_key = entries.setdefault(namespace, {})
            more = self._serializer.deserialize(value[len(APPENDED) :])
            by_key[address] = [*by_key.get(address, ()), *more]
        elif value is not None:
            entries.setdefault(namespace, {})[address] = self._serializer.deserialize(value)
        elif namespace in entries:
            entries[namespace].pop(address, None)
            if not entries[namespace]:
                del entries[namespace]

    def _appends(self, value: bytes | None) -> bool:
        """Return whether `value`, from a portable row, appends elements to a list."""
        return self._listed and value is not None and value.startswith(APPENDED)

    @override
    def load_all(self, rows: Changes) -> None:
        """Put portable rows into the table.

        Without namespaces, loops in C take 0.2 µs for a row instead of 1.4.
        """
        layout, codec = self.current.layout, self.current.codec
        physical, values = rows.keys, rows.values
        namespaced = not isinstance(self._namespaces, VoidKeyCodec)
        if namespaced or not codec.exact or (self._listed and any(map(self._appends, values))):
            super().load_all(rows)
            return
        self._release_held()
        keys = codec.decode_many(physical, layout.group_bytes)
        deserialize = self._serializer.deserialize
        loaded = [None if value is None else deserialize(value) for value in values]
        start = 0
        for prefix, run in groupby(physical, itemgetter(slice(layout.group_bytes))):
            end = start + len(list(run))
            self._load_group(layout.group_of(prefix), keys[start:end], loaded[start:end])
            start = end

    def _load_group(self, group: int, keys: list[Any], values: list[Any]) -> None:
        """Store the values of keys in a key group, without a namespace. None removes a key."""
        entries = self._groups[group]
        by_key = entries.setdefault(VOID_NAMESPACE, {})
        by_key.update(zip(keys, values, strict=True))
        if countOf(map(type, values), type(None)):  # if a key occurs twice, its last value counts
            for key in {key for key in keys if by_key[key] is None}:
                del by_key[key]
            if not by_key:
                del entries[VOID_NAMESPACE]

    def rows(self, groups: Groups, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the physical key and the serialized value of each entry of a key group.

        `groups` is the result of ``freeze``.
        """
        serialize = self._serializer.serialize
        for namespace, by_key in groups[group].items():
            for key, value in by_key.items():
                yield self._physical(group, namespace, key), serialize(value)

    @override
    def count(self) -> int:
        """Return the number of entries."""
        return sum(len(by_key) for group in self._groups.values() for by_key in group.values())

    @override
    def changed_entries(self) -> int:
        changed_keys = self.changed
        return (
            super().changed_entries()
            if changed_keys is None
            else sum(map(len, changed_keys.values()))
        )

    @override
    def changes(self) -> Changes:
        """Return the changed entries as serialized rows, sorted by key."""
        keys: list[bytes] = []
        rows: list[bytes | None] = []
        codec = self.current.codec
        for (group, namespace), changed_keys in (self.changed or {}).items():
            held = self._groups[group].get(namespace, _NOTHING)
            values = list(map(held.get, changed_keys))
            prefix, space = self.current.group_prefixes[group], self._encode_namespace(namespace)
            addresses: list[Any] = list(changed_keys)
            encoded = codec.encode_many(addresses) if codec.exact else addresses
            keys += [prefix + key + space for key in encoded]
            if self._listed:
                rows += map(self._changed_list, values, changed_keys.values())
            else:
                rows += serialized(self._serializer, values)
        return Changes(keys, rows).in_order()

    def _changed_list(self, value: Any, appended: int | None) -> bytes | None:
        """Return the value of a changed list's portable row, or None if the list was removed.

        Args:
            value: the list, or None.
            appended: the number of last elements that the row appends. If it is None, the row
                contains the whole list.
        """
        if value is None or appended is None:
            return None if value is None else self._serializer.serialize(value)
        return APPENDED + self._serializer.serialize(value[-appended:])
