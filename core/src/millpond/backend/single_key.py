"""State for one key at a time: what a bounded, sorted input needs. Everything goes with the key.

The idea is Flink's ``BatchExecutionStateBackend``: rows come sorted by key, so when the next key
comes nothing of the one before is needed any more. There are no snapshots and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.backend.expiry import Sweeper
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.state_registry import Enumeration, StateRegistry
from millpond.backend.timer_queue import MemoryTimerRows, TimerQueue
from millpond.closeable import Closeable
from millpond.errors import BulkCallError, NullValueError, brief
from millpond.spi.backend import RegisteredState, TableSource
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.rows import Change, Expiry
from millpond.spi.tables import ABSENT, CellTable, MapTable, TimerRows
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.types import VOID_NAMESPACE, DeclaredKeyType, KeyCodec, VoidNamespace

S = TypeVar("S", bound=State, default=Any)


class _SingleKeyTable:
    """What both tables share.

    Attributes:
        entries: those of the key that is held, by namespace.
    """

    def __init__(self, current: CurrentKey, namespaces: KeyCodec) -> None:
        self.current = current
        self._namespaces = namespaces
        self.entries: dict[bytes, Any] = {}

    def _own(self) -> dict[bytes, Any]:
        """The entries of the current key."""
        if self.current.key_group is None:
            raise self.current.missing()
        return self.entries

    def prepare_namespace(self, namespace: Any) -> Any:
        """The encoded namespace."""
        return self._namespaces.encode(namespace)

    def clear_all(self) -> None:
        """Another key comes; an iteration that was begun keeps what it goes through."""
        if self.entries:
            self.entries = {}

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Nothing lives long enough to be swept."""
        return 0, 0, True

    def changed_entries(self) -> int:
        """None that a snapshot could tell: this backend has no snapshots."""
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
        self._own().setdefault(namespace, {})[key] = value

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
        entries.setdefault(namespace, {})[key] = value

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


class _HeldKey(CurrentKey):
    """The current key; another one calls for the tables to be emptied.

    Attributes:
        held: the key whose entries the tables hold, also while there is no current key.
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
                f"key {brief(key)} is not the one whose rows are being processed, and in batch "
                "execution and bootstraps there is state of that one alone"
            )
            raise BulkCallError("", reason)

    def _holds(self, key: Any) -> bool:
        if self.held is None or self.codec.exact:
            return bool(key == self.held)
        return self.codec.encode(key) == self.codec.encode(self.held)


class SingleKeyBackend(Closeable, TableSource):
    """Keyed state that another current key empties: the ``KeyedStates`` that batches work with.

    Attributes:
        parameters: what the backend was opened with.
        max_parallelism: the number of key groups of the whole operator.
        key_group_range: the key groups that it takes.
        current: the current key.
        states: the states.
        enumeration: goes through keys.
        metrics: the metrics of the states.
        operator_state: the subtask's operator state, where it has some.
    """

    name: ClassVar[str] = "single-key"

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self.parameters = parameters
        self.max_parallelism = parameters.max_parallelism
        self.key_group_range = parameters.key_group_range
        self.current = _HeldKey(parameters, self._empty)
        self.states = StateRegistry(parameters, self.current, Sweeper(parameters.clock), self)
        self.enumeration = Enumeration(self.current, self.states, self)
        self.metrics = MetricRegistry()
        self.operator_state: OperatorStateBackend | None = None

    def _empty(self) -> None:
        for table in self.states.tables.values():
            if isinstance(table, (_SingleKeyTable, MemoryTimerRows)):
                table.clear_all()

    # ---------------------------------------------------------------- for functions

    def set_current_key(self, key: Any) -> None:
        """Choose the key that all states work on."""
        if key is None:
            raise NullValueError("the key", str(self.parameters.operator))
        checked, key_group = self.current.codec.check_with_group(key, self.max_parallelism)
        self.current.select(checked, key_group)

    @property
    def current_key(self) -> Any:
        """The current key; NoCurrentKeyError where there is none."""
        return self.current.key

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = VOID_NAMESPACE,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """The state of a descriptor, set to a namespace; made at the first request."""
        self.current.require_open()
        return self.states.state(descriptor, namespace, namespace_type)

    def timer_queue(
        self, domain: str, namespace_type: DeclaredKeyType[Any] = VoidNamespace
    ) -> TimerQueue:
        """The timers of a time domain, made at the first request."""
        self.current.require_open()
        return self.states.timer_queue(domain, namespace_type)

    def has_timers(self, domain: str) -> bool:
        """Whether a queue of a domain was requested."""
        return self.states.has_timers(domain)

    def table_of(self, name: str) -> Any:
        """The table of a state under registration; for ``millpond_create_state``."""
        return self.states.tables[name]

    def keys(self, state_name: str, namespace: Any = VOID_NAMESPACE) -> Iterator[Any]:
        """The key whose entries are held, if a state and namespace have some."""
        return self.enumeration.keys(state_name, namespace)

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """The key whose entries are held, with each namespace of a state that has some."""
        return self.enumeration.keys_and_namespaces(state_name)

    def apply_to_all_keys(
        self, descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
    ) -> None:
        """Call ``function(key, state)`` for the key whose entries are held."""
        check_type("function", function, Callable)
        state = self.get_partitioned_state(descriptor)
        self.enumeration.apply(function, state, descriptor.name, VOID_NAMESPACE)

    def num_state_entries(self) -> int:
        """How many entries are held: one per state and namespace; map entries singly."""
        return self.enumeration.count()

    def flush(self) -> None:
        """End a bundle: nothing is buffered."""
        self.current.require_open()

    def take_rows(self) -> Iterator[tuple[str, list[Change]]]:
        """What the current key holds, as portable rows of each state; then it holds nothing."""
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

    # ---------------------------------------------------------------- for the parts

    @override
    def make_state(self, registered: RegisteredState) -> Any:
        return self.parameters.registry.make_state(self, registered)

    @override
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        if registered.map_key_codec is not None:
            return _Maps(self.current, registered.namespace_codec, registered.map_key_codec)
        return _Cells(self.current, registered.namespace_codec)

    @override
    def create_timer_rows(self, name: str) -> TimerRows:
        return MemoryTimerRows(self.current.layout, (), track_changes=False)

    @override
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        table: Any = self.states.tables[name]
        for namespace in list(table.entries):
            yield self.current.held, namespaces.decode(namespace, 0)[0]

    @override
    def count_entries(self) -> int:
        tables = (t for t in self.states.tables.values() if isinstance(t, _SingleKeyTable))
        return sum(
            sum(map(len, table.entries.values()))
            if isinstance(table, _Maps)
            else len(table.entries)
            for table in tables
        )
