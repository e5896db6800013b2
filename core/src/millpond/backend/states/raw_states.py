"""The base class of raw states, which read and write tables, and the value and map states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from typing_extensions import override

from millpond.arguments import check_elements, check_type
from millpond.errors import NullValueError, StateTypeError
from millpond.spi.tables import ABSENT, CellTable, Held, KeySpan, MapTable, SortedMapTable
from millpond.state.descriptors import StateDescriptor, ValueStateDescriptor
from millpond.state.interfaces import (
    MapState,
    MergingState,
    SortedMapState,
    State,
    ValueState,
    first_entries,
    no_ttl_error,
)
from millpond.types import KeyCodec, VoidNamespace
from millpond.types.key_codecs import TupleKeyCodec

_MOST = 1000
_LONGEST = 100
_SHORT = frozenset({bool, int, float, date, datetime, type(None), VoidNamespace})
_LASTING = _SHORT | {str, bytes}


class PreparedNamespaces:
    """A cache of namespaces in the form that tables take, by namespace object.

    Many rows have the same window object. Checking and encoding a window takes 2 µs, and a look-up
    in this cache 0.08 µs. Mutable objects are not cached.

    Args:
        codec: the codec of the namespaces.
        prepare: a function that checks a namespace and returns the form that tables take.
    """

    def __init__(self, codec: KeyCodec, prepare: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._prepare = prepare
        # The value contains the namespace, so that no other object gets the same id.
        self._made: dict[int, tuple[Any, Any]] = {}

    def prepared(self, namespace: Any) -> Any:
        """Return `namespace` in the form that tables take. Raises the errors of ``prepare``."""
        found = self._made.get(id(namespace))
        if found is not None:
            return found[1]
        made = self._prepare(namespace)
        if _lasts(self._codec, namespace):
            if len(self._made) >= _MOST:
                self._made.clear()
            self._made[id(namespace)] = namespace, made
        return made


def _lasts(codec: KeyCodec, value: Any) -> bool:
    """Return whether `value` may be cached, because it is short and immutable."""
    if isinstance(codec, TupleKeyCodec):  # for a tuple or an instance of a frozen class
        parts = codec.split(value)
        return _SHORT.issuperset(map(type, parts)) or all(map(_lasts, codec.parts, parts))
    return type(value) in _LASTING and not (
        isinstance(value, (str, bytes)) and len(value) > _LONGEST
    )


class RawState(State):
    """The base class of raw states."""

    _table: CellTable | MapTable

    def __init__(
        self, descriptor: StateDescriptor, namespace_codec: KeyCodec, table: CellTable | MapTable
    ) -> None:
        self._place = f"state {descriptor.name!r}"
        self._namespace_codec = namespace_codec
        self._table = table
        self._serializer = descriptor.value_serializer()
        self._trusted = self._serializer.trusted_type
        self._immutable = self._serializer.immutable
        self._copy = self._serializer.copy
        self._expires = descriptor.ttl_config is not None
        self._namespace: Any = None
        self._prepared = PreparedNamespaces(namespace_codec, self._prepare)

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        self._namespace = self._prepared.prepared(namespace)

    def _prepare(self, namespace: Any) -> Any:
        if namespace is None:
            raise NullValueError("the namespace", self._place)
        return self._table.prepare_namespace(self._checked(self._namespace_codec.check, namespace))

    def _checked(self, check: Callable[[Any], Any], value: Any) -> Any:
        try:
            return check(value)
        except (StateTypeError, NullValueError) as error:
            error.place = self._place
            raise

    def _check(self, value: Any, what: str = "an element") -> Any:
        if type(value) is self._trusted:
            return value
        if self._is_null(value):
            raise NullValueError(what, self._place)
        made = self._checked(self._serializer.check, value)
        if self._is_null(made):  # the value was NaT or NA
            raise NullValueError(what, self._place)
        return made

    def _is_null(self, value: Any) -> bool:
        """Return whether `value` is None, or None with a timestamp in a state with TTL."""
        return value is None or (self._expires and value[0] is None)

    @override
    def clear(self) -> None:
        if isinstance(self._table, MapTable):
            self._table.clear(self._namespace)
        else:
            self._table.remove(self._namespace)


class MergesNamespaces(MergingState[Any, Any]):
    """A mixin for raw states that merges namespaces by combining their stored values."""

    _table: CellTable
    _place: str
    _prepare: Callable[[Any], Any]

    def _combine(self, stored: list[Any]) -> Any:
        """Return the combination of stored values, or None if all of them have expired.

        The table owns the values, and a running snapshot may read them. A user's function may
        modify its arguments, so it must get copies.
        """
        raise NotImplementedError

    def _moved(self, stored: Any) -> Any:
        """Return a stored value for the target namespace. A list state returns a copy."""
        return stored

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge namespaces. If a user's function raises an error, nothing changes."""
        if sources is None:
            raise NullValueError("the source namespaces", self._place)
        check_elements("sources", sources)
        table, into = self._table, self._prepare(target)
        places = dict.fromkeys((into, *[self._prepare(source) for source in sources]))
        found = {place: each for place in places if (each := table.get(place)) is not None}
        if found.keys() <= {into}:
            return
        held = list(found.values())
        merged = self._moved(held[0]) if len(held) == 1 else self._combine(held)
        for place in found:
            table.remove(place)
        if merged is not None:
            table.put(into, merged)


_NOTHING: Held = {}


class RawValueState(RawState, ValueState[Any]):
    """A value state over a cell table.

    If the table shares its dictionaries (see ``CellTable.hold``), the state reads and overwrites
    values in them without calling the table. Selecting a key, reading and writing then takes 0.45
    µs instead of 0.57 on heap (benchmarks/by_hand.py).
    """

    _table: CellTable

    def __init__(
        self, descriptor: ValueStateDescriptor, namespace_codec: KeyCodec, table: CellTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        default = descriptor.default
        self._default = None if default is None else self._check(default)
        self._current = table.current
        self._held = _NOTHING
        # If a value may be large, the table must count its size, so writes must call the table.
        self._plain = None if self._serializer.sized else self._trusted

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        before = self._namespace
        super().set_current_namespace(namespace)
        if self._namespace is not before:
            self._held = _NOTHING

    @override
    def value(self) -> Any:
        current = self._current
        held = self._held.get(current.key_group)
        value = None if held is None else held[0].get(current.address)
        if value is None:
            value = self._table.get(self._namespace)
            if value is None:
                value = self._default
                if value is None:
                    return None
        return value if self._immutable else self._copy(value)

    @override
    def update(self, value: Any, ttl: timedelta | None = None) -> None:
        if ttl is not None:
            raise no_ttl_error(self._place)
        current = self._current
        held = self._held.get(current.key_group)
        if held is None:
            self._held = self._table.hold(self._namespace)
        elif type(value) is self._plain:
            values, changed = held
            address = current.address
            if address in values:
                values[address] = value
                if changed is not None:
                    changed[address] = None
                return
        if type(value) is self._trusted:
            self._table.put(self._namespace, value)
            return
        checked = None if value is None else self._checked(self._serializer.check, value)
        if checked is None or self._is_null(checked):  # pandas' NaT and NA become None
            self._table.remove(self._namespace)
        else:
            self._table.put(self._namespace, checked)

    @override
    def read_many(self, keys: Any) -> list[Any]:
        stored = self._table.get_many(self._namespace, keys)
        default, copy = self._default, self._copy
        if default is not None:
            stored = [default if value is None else value for value in stored]
        return stored if self._immutable else [None if v is None else copy(v) for v in stored]

    @override
    def write_many(self, keys: Any, values: list[Any]) -> None:
        self._table.put_many(self._namespace, keys, values)


def _copied(
    entries: Iterator[tuple[Any, Any]], copy_of: Callable[[Any], Any] | None
) -> Iterator[tuple[Any, Any]]:
    return entries if copy_of is None else ((key, copy_of(value)) for key, value in entries)


class MapWalk:
    """An iteration over one key's map that can change the map, even if another key is current.

    The TTL wrapper uses it to remove expired entries during an iteration.
    """

    def __init__(
        self,
        table: MapTable,
        place: Any,
        entries: Iterator[tuple[Any, Any]],
        copy_of: Callable[[Any], Any] | None,
        prepare_key: Callable[[Any], Any],
        check: Callable[[Any], Any],
    ) -> None:
        self._table, self._place, self._entries = table, place, entries
        self._copy_of, self._prepare_key, self._check = copy_of, prepare_key, check

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries, with copies of mutable values."""
        return _copied(self._entries, self._copy_of)

    def put(self, key: Any, value: Any) -> None:
        """Overwrite the entry of `key`."""
        self._table.put_at(self._place, self._prepare_key(key), self._check(value))

    def remove(self, key: Any) -> None:
        """Remove the entry of `key`."""
        self._table.remove_at(self._place, self._prepare_key(key))


class RawMapState(RawState, MapState[Any, Any]):
    """A map state over a map table, which stores each entry separately."""

    _table: MapTable

    def __init__(
        self, descriptor: StateDescriptor, namespace_codec: KeyCodec, table: MapTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        codec = descriptor.map_key_codec()
        assert codec is not None
        self._encode_bound = codec.encode_bound
        self._check_map_key = codec.check
        self._prepare_map_key = table.prepare_key
        self._last_key: Any = ABSENT
        self._last_prepared: Any = None

    def _key(self, key: Any) -> Any:
        # A read-modify-write calls this twice. To prepare the key only once saves a seventh of
        # its time on heap and a fifth on LMDB (benchmarks/by_hand.py).
        if key is self._last_key:
            return self._last_prepared
        if key is None:
            raise NullValueError("a map key", self._place)
        try:
            prepared = self._prepare_map_key(self._check_map_key(key))
        except (StateTypeError, NullValueError) as error:
            error.place = self._place
            raise
        if type(key) in _LASTING:
            self._last_key, self._last_prepared = key, prepared
        return prepared

    def _value(self, value: Any) -> Any:
        if type(value) is self._trusted:
            return value
        try:
            return self._checked(self._serializer.check, value)
        except StateTypeError:
            if value is None or (self._expires and value[0] is None):
                raise NullValueError("a map value of this type", self._place) from None
            raise

    @override
    def get(self, key: Any, default: Any = None) -> Any:
        value = self._table.get(self._namespace, self._key(key))
        if value is ABSENT:
            return default
        return value if self._immutable else self._copy(value)

    @override
    def put(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        if ttl is not None:
            raise no_ttl_error(self._place)
        self._table.put(self._namespace, self._key(key), self._value(value))

    @override
    def put_all(self, entries: Mapping[Any, Any], ttl: timedelta | None = None) -> None:
        if ttl is not None:
            raise no_ttl_error(self._place)
        if entries is None:
            raise NullValueError("the map of entries", self._place)
        check_type("entries", entries, Mapping)
        checked = [(self._key(key), self._value(value)) for key, value in entries.items()]
        for key, value in checked:
            self._table.put(self._namespace, key, value)

    @override
    def remove(self, key: Any) -> None:
        self._table.remove(self._namespace, self._key(key))

    @override
    def contains(self, key: Any) -> bool:
        return self._table.get(self._namespace, self._key(key)) is not ABSENT

    @override
    def items(self) -> Iterator[tuple[Any, Any]]:
        table, copy_of = self._table, None if self._immutable else self._copy
        return _copied(table.items_at(table.place(self._namespace)), copy_of)

    def walk(self) -> MapWalk:
        """Return an iteration over the current key's map that can change the map."""
        place = self._table.place(self._namespace)
        return self._walk(place, self._table.items_at(place))

    def _walk(self, place: Any, entries: Iterator[tuple[Any, Any]]) -> MapWalk:
        copy_of = None if self._immutable else self._copy
        return MapWalk(self._table, place, entries, copy_of, self._key, self._value)

    @override
    def is_empty(self) -> bool:
        return self._table.is_empty(self._namespace)


class RawSortedMapState(RawMapState, SortedMapState[Any, Any]):
    """A sorted map state over a sorted map table."""

    _table: SortedMapTable

    def _span(self, start: Any, stop: Any, *, reverse: bool = False) -> KeySpan:
        low = b"" if start is None else self._checked(self._encode_bound, start)
        high = None if stop is None else self._checked(self._encode_bound, stop)
        return KeySpan(low, high, reverse)

    @override
    def range(
        self,
        start: Any = None,
        stop: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        return first_entries(iter(self.walk_range(start, stop, reverse=reverse)), limit)

    def walk_range(self, start: Any, stop: Any, *, reverse: bool) -> MapWalk:
        """Return an iteration over a range of the current key's map that can change the map."""
        check_type("reverse", reverse, bool)
        place, span = self._table.place(self._namespace), self._span(start, stop, reverse=reverse)
        return self._walk(place, self._table.range_at(place, span))

    @override
    def remove_range(self, start: Any = None, stop: Any = None) -> None:
        table, place = self._table, self._table.place(self._namespace)
        for key, _ in table.range_at(place, self._span(start, stop)):
            table.remove_at(place, self._prepare_map_key(key))
