"""Keyed state for bounded input that is sorted by key, with the state of one key at a time.

As in Flink's ``BatchExecutionStateBackend``, the state of a key is removed when the next key is
selected, because no more rows of the key follow. There are no snapshots and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from typing_extensions import TypeVar, override

from millpond.backend.sorted_entries import SortedCursor, SortedEntries
from millpond.backend.subtask_states import SubtaskStates
from millpond.backend.timer_queue import MemoryTimerRows
from millpond.errors import BulkCallError, brief
from millpond.spi.backend import RegisteredState
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.portable_rows import Change, Expiry
from millpond.spi.tables import ABSENT, CellTable, KeySpan, MapTable, SortedMapTable, TimerRows
from millpond.state.interfaces import State
from millpond.types import KeyCodec

S = TypeVar("S", bound=State, default=Any)


class _SingleKeyTable:
    """The base class of the tables of a ``SingleKeyBackend``.

    Attributes:
        entries: the entries, by namespace, of the only key that has state.
    """

    def __init__(self, current: CurrentKey, namespaces: KeyCodec) -> None:
        self.current = current
        self._namespaces = namespaces
        self.entries: dict[bytes, Any] = {}

    def _own(self) -> dict[bytes, Any]:
        """Return the entries of the current key."""
        if self.current.key_group is None:
            raise self.current.no_key_error()
        return self.entries

    def prepare_namespace(self, namespace: Any) -> Any:
        """Return the encoded namespace."""
        return self._namespaces.encode(namespace)

    def clear_all(self) -> None:
        """Remove all entries. A running iteration still sees them."""
        if self.entries:
            self.entries = {}

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Do nothing, because all entries are removed together with their key."""
        return 0, 0, True

    def changed_entries(self) -> int:
        """Return 0, because there are no snapshots."""
        return 0


class _Cells(_SingleKeyTable, CellTable):
    @override
    def get(self, namespace: Any) -> Any:
        return self._own().get(namespace)

    @override
    def put(self, namespace: Any, value: Any) -> None:
        self._own()[namespace] = value

    @override
    def remove(self, namespace: Any) -> None:
        self._own().pop(namespace, None)


class _Maps(_SingleKeyTable, MapTable):
    _new_map: type[dict[bytes, Any]] = dict

    def __init__(self, current: CurrentKey, namespaces: KeyCodec, map_keys: KeyCodec) -> None:
        super().__init__(current, namespaces)
        self._map_keys = map_keys

    @override
    def prepare_key(self, key: Any) -> Any:
        return self._map_keys.encode(key)

    @override
    def get(self, namespace: Any, key: Any) -> Any:
        return self._own().get(namespace, {}).get(key, ABSENT)

    @override
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        self.put_at(self.place(namespace), key, value)

    @override
    def remove(self, namespace: Any, key: Any) -> None:
        self.remove_at(self.place(namespace), key)

    @override
    def place(self, namespace: Any) -> Any:
        return self._own(), namespace

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        entries, namespace = place
        for key in list(entries.get(namespace, ())):
            value = entries.get(namespace, {}).get(key, ABSENT)
            if value is not ABSENT:
                yield self._map_keys.decode(key, 0)[0], value

    @override
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        entries, namespace = place
        if namespace not in entries:
            entries[namespace] = self._new_map()
        entries[namespace][key] = value

    @override
    def remove_at(self, place: Any, key: Any) -> None:
        entries, namespace = place
        found = entries.get(namespace, {})
        found.pop(key, None)
        if not found:
            entries.pop(namespace, None)

    @override
    def is_empty(self, namespace: Any) -> bool:
        return not self._own().get(namespace)

    @override
    def clear(self, namespace: Any) -> None:
        self._own().pop(namespace, None)


class _SortedMaps(_Maps, SortedMapTable):
    _new_map = SortedEntries

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        return self.range_at(place, KeySpan())

    @override
    def range_at(self, place: Any, span: KeySpan) -> Iterator[tuple[Any, Any]]:
        entries, namespace = place
        cursor = SortedCursor(span)
        while (key := cursor.peek(entries.get(namespace))) is not None:
            cursor.pass_by(key)
            yield self._map_keys.decode(key, 0)[0], entries[namespace][key]


class _HeldKey(CurrentKey):
    """The current key. Selecting another key removes the entries of the key before.

    Args:
        empty: a function that removes all entries.

    Attributes:
        held: the key that has entries. It remains set while there is no current key.
    """

    def __init__(self, parameters: KeyedBackendParameters, empty: Callable[[], None]) -> None:
        super().__init__(SingleKeyBackend.name, parameters)
        self.held: Any = None
        self._empty = empty

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        if key is not self.held and not self._holds(key):
            self.held = key
            self._empty()

    @override
    def check_reach(self, key: Any) -> None:
        if not self._holds(key):
            reason = (
                f"the state of key {brief(key)} is not available: in a batch or a bootstrap "
                "a function can use only the state of the key whose rows it processes"
            )
            raise BulkCallError("", reason)

    def _holds(self, key: Any) -> bool:
        if self.held is None or self.codec.exact:
            return bool(key == self.held)
        return self.codec.encode(key) == self.codec.encode(self.held)


class SingleKeyBackend(SubtaskStates):
    """Keyed state for batch input that is sorted by key, with the state of one key at a time.

    Selecting another key removes the state of the key before.
    """

    name: ClassVar[str] = "single-key"

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self._held = _HeldKey(parameters, self._empty)
        super().__init__(parameters, self._held)

    def _empty(self) -> None:
        for table in self.states.tables.values():
            if isinstance(table, (_SingleKeyTable, MemoryTimerRows)):
                table.clear_all()

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""
        self.current.require_open()

    def take_rows(self) -> Iterator[tuple[str, list[Change]]]:
        """Iterate over the portable rows of the current key, by state, and then remove them."""
        group, key = self.current.encoded()
        prefix = self.current.layout.group_prefix(group) + key
        for name, table in self.states.tables.items():
            rows = self._rows(name, table, prefix)
            if rows:
                yield name, rows
        self._empty()

    def _rows(self, name: str, table: Any, prefix: bytes) -> list[Change]:
        if isinstance(table, MemoryTimerRows):
            return [row for rows in table.freeze().values() for row in rows]
        registered = self.states.known(name)
        assert registered is not None
        serialize = registered.serializer.serialize
        if isinstance(table, _Cells):
            return [(prefix + space, serialize(value)) for space, value in table.entries.items()]
        return [
            (prefix + space + key, serialize(value))
            for space, entries in table.entries.items()
            for key, value in entries.items()
        ]

    @override
    def close(self) -> None:
        self.current.close()
        self.states.tables.clear()

    @override
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        if registered.map_key_codec is not None:
            made = _SortedMaps if registered.descriptor.is_sorted else _Maps
            return made(self.current, registered.namespace_codec, registered.map_key_codec)
        return _Cells(self.current, registered.namespace_codec)

    @override
    def create_timer_rows(self, name: str) -> TimerRows:
        return MemoryTimerRows(self.current.layout, (), track_changes=False)

    @override
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        table: Any = self.states.tables[name]
        for namespace in list(table.entries):
            yield self._held.held, namespaces.decode(namespace, 0)[0]

    @override
    def count_entries(self) -> int:
        tables = (t for t in self.states.tables.values() if isinstance(t, _SingleKeyTable))
        return sum(
            sum(map(len, table.entries.values()))
            if isinstance(table, _Maps)
            else len(table.entries)
            for table in tables
        )
