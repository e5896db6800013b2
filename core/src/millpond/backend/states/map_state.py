"""The raw state of maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typing_extensions import override

from millpond.arguments import check_type
from millpond.backend.states.raw_state import RawState
from millpond.errors import NullValueError, StateTypeError
from millpond.spi.tables import ABSENT, MapTable
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import MapState
from millpond.types import KeyCodec


def _copied(
    entries: Iterator[tuple[Any, Any]], copy_of: Callable[[Any], Any] | None
) -> Iterator[tuple[Any, Any]]:
    return entries if copy_of is None else ((key, copy_of(value)) for key, value in entries)


class MapWalk:
    """An iteration over one key's map, even if another key becomes the current one."""

    def __init__(
        self,
        table: MapTable,
        namespace: Any,
        copy_of: Callable[[Any], Any] | None,
        prepare_key: Callable[[Any], Any],
        check: Callable[[Any], Any],
    ) -> None:
        self._table = table
        self._place = table.place(namespace)
        self._copy_of, self._prepare_key, self._check = copy_of, prepare_key, check

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries; copy mutable ones."""
        return _copied(self._table.items_at(self._place), self._copy_of)

    def put(self, key: Any, value: Any) -> None:
        """Overwrite an entry."""
        self._table.put_at(self._place, self._prepare_key(key), self._check(value))

    def remove(self, key: Any) -> None:
        """Remove an entry."""
        self._table.remove_at(self._place, self._prepare_key(key))


class RawMapState(RawState, MapState[Any, Any]):
    """A map, stored entry by entry."""

    _table: MapTable

    def __init__(
        self, descriptor: StateDescriptor, namespace_codec: KeyCodec, table: MapTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        codec = descriptor.map_key_codec()
        assert codec is not None
        self._check_map_key = codec.check
        self._prepare_map_key = table.prepare_key

    def _key(self, key: Any) -> Any:
        if key is None:
            raise NullValueError("a map key", self._place)
        try:
            return self._prepare_map_key(self._check_map_key(key))
        except StateTypeError as error:
            error.place = self._place
            raise

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
    def put(self, key: Any, value: Any) -> None:
        self._table.put(self._namespace, self._key(key), self._value(value))

    @override
    def put_all(self, entries: Mapping[Any, Any]) -> None:
        if entries is None:
            raise NullValueError("the map of entries", self._place)
        try:
            items = entries.items()
        except AttributeError:
            check_type("entries", entries, Mapping)
            raise
        checked = [(self._key(key), self._value(value)) for key, value in items]
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
        """Return an iteration that can write to its own map."""
        copy_of = None if self._immutable else self._copy
        return MapWalk(self._table, self._namespace, copy_of, self._key, self._value)

    @override
    def is_empty(self) -> bool:
        return self._table.is_empty(self._namespace)
