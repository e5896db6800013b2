"""Keyed state for bounded input that is sorted by key, with the state of one key at a time.

As in Flink's ``BatchExecutionStateBackend``, the state of a key is removed when the next key is
selected, because no more rows of the key follow. There are no snapshots and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

from typing_extensions import TypeVar, override

from millpond.backend.sorted_entries import SortedCursor, SortedEntries
from millpond.backend.subtask_states import SubtaskStates
from millpond.backend.timer_queue import MemoryTimerRows
from millpond.errors import BulkCallError, brief
from millpond.spi.backend import RegisteredState
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.portable_rows import Changes, Expiry
from millpond.spi.tables import ABSENT, CellTable, KeySpan, MapTable, SortedMapTable, TimerRows
from millpond.state.interfaces import State
from millpond.types import KeyCodec

S = TypeVar("S", bound=State, default=Any)

Sink: TypeAlias = Callable[[str, int, Changes], None]
"""A function that takes a state's name, a key group, and rows of the state in this key group."""


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
        held_group: the key group of ``held``.
    """

    def __init__(self, parameters: KeyedBackendParameters, empty: Callable[[], None]) -> None:
        super().__init__(SingleKeyBackend.name, parameters)
        self.held: Any = None
        self.held_group = 0
        self._empty = empty

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        if key is not self.held and not self._holds(key):
            self._empty()
            self.held, self.held_group = key, key_group

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


_MOST_FINISHED = 256
"""The number of finished keys, values and timers in memory.

It is small, because a single value may be large.
"""


def _values_in(entry: Any) -> int:
    """Return the number of values in an entry, which may be a list or a map."""
    return len(entry) if isinstance(entry, (dict, list)) else 1


class FillingBackend(SingleKeyBackend):
    """A backend to fill a savepoint: it passes on the state of a key when the next key is selected.

    The rows of many keys are passed on together. With the conversion of tables by column, a
    savepoint of text keys and ints takes 6.8 µs a key instead of 15.2 (processor time,
    benchmarks/bootstrapping.py).

    Args:
        parameters: the parameters of the backend.
        sink: receives the rows of finished keys, and must not select a key.
    """

    def __init__(self, parameters: KeyedBackendParameters, sink: Sink) -> None:
        self._sink = sink
        self._finished: dict[str, list[tuple[int, Any, Any]]] = {}
        self._held_values = 0
        super().__init__(parameters)

    @override
    def _empty(self) -> None:
        """Set the state of the key before aside. Pass on the state of many keys together."""
        held = self._held
        for name, table in self.states.tables.items():
            if isinstance(table, _SingleKeyTable) and table.entries:
                finished = self._finished.setdefault(name, [])
                finished.append((held.held_group, held.held, table.entries))
                self._held_values += sum(map(_values_in, table.entries.values()))
                table.entries = {}
        self._held_values += 1
        if self._held_values + self._timers() >= _MOST_FINISHED:
            self._pass_on()

    def _timers(self) -> int:
        """Return the number of timers of finished keys. They remain in their tables."""
        tables = self.states.tables.values()
        return sum(len(table) for table in tables if isinstance(table, MemoryTimerRows))

    def finish(self) -> None:
        """Pass on the rows of all keys, after the last row."""
        self._empty()
        self._pass_on()

    def _pass_on(self) -> None:
        for name, finished in self._finished.items():
            for group, keys in groupby(finished, key=itemgetter(0)):
                self._sink(name, group, self._rows(name, group, list(keys)))
        self._finished, self._held_values = {}, 0
        for name, table in self.states.tables.items():
            if isinstance(table, MemoryTimerRows):
                for prefix, rows in table.freeze().items():
                    self._sink(name, self.current.layout.group_of(prefix), Changes.from_rows(rows))
                table.clear_all()

    def _rows(self, name: str, group: int, finished: list[tuple[int, Any, Any]]) -> Changes:
        """Return the portable rows of some keys of a key group, given their entries."""
        registered = self.states.known(name)
        assert registered is not None
        prefix = self.current.layout.group_prefix(group)
        encoded = self.current.codec.encode_many([key for _, key, _ in finished])
        entries = [
            (prefix + key + space, held)
            for key, (_, _, spaces) in zip(encoded, finished, strict=True)
            for space, held in spaces.items()
        ]
        if registered.map_key_codec is not None:
            entries = [(at + key, value) for at, held in entries for key, value in held.items()]
        serialize = registered.serializer.serialize
        return Changes([at for at, _ in entries], [serialize(value) for _, value in entries])
