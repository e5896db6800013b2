"""The states of a backend, which functions request, and which must fit restored states."""

from __future__ import annotations

from typing import Any

import attrs
from typing_extensions import TypeVar

from millpond.arguments import check_type
from millpond.backend.journal import Journal, JournaledTimerQueue
from millpond.backend.migration import cell_migration, check_kind, namespace_change
from millpond.backend.timer_queue import TimerQueue, timer_meta, timer_state
from millpond.backend.ttl_sweep import Sweeper
from millpond.errors import (
    NullValueError,
    StateConflictError,
    StateMigrationError,
    StateNameError,
    TooManyStatesError,
    UnsupportedCapabilityError,
)
from millpond.spi.backend import (
    AddressChange,
    CellMigration,
    EntryStore,
    RegisteredState,
    TableSource,
)
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.portable_rows import cell_serializer
from millpond.spi.tables import CellTable, MapTable, TimerRows
from millpond.state.descriptors import StateDescriptor, StateKind, same_declaration
from millpond.state.interfaces import State
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.ttl_states import stamped_descriptor
from millpond.state.ttl.ttl_times import TtlTimes
from millpond.types import (
    DeclaredKeyType,
    KeyCodec,
    infer_key_type,
    key_codec_for,
)

S = TypeVar("S", bound=State, default=Any)

_IN_USE = "it is in use; a type changes across a restore only"


class StateRegistry:
    """The states and timer queues of a backend, each of which is created by the first request.

    Args:
        rows: the backend that contains the rows of restored states; None if it cannot restore
            states.

    Attributes:
        restored: the description of each restored state, whether or not a function has requested
            it.
        tables: the tables, and the rows of timer queues, by the name of the state.
        journal: a record of how to undo the changes of a row; None if failed rows are not undone.
    """

    def __init__(
        self,
        parameters: KeyedBackendParameters,
        current: CurrentKey,
        sweeper: Sweeper,
        source: TableSource,
        rows: EntryStore | None = None,
    ) -> None:
        self._parameters = parameters
        self._current = current
        self._sweeper = sweeper
        self._source = source
        self._rows = rows
        self.restored: dict[str, StateMeta] = {}
        self.tables: dict[str, CellTable | MapTable | TimerRows] = {}
        self.journal: Journal | None = None
        self._journaled: set[str] = set()
        self._registered: dict[str, RegisteredState] = {}
        self._timers: dict[str, tuple[StateMeta, TimerQueue]] = {}

    # ---------------------------------------------------------------- states

    def state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any,
        namespace_type: DeclaredKeyType[Any] | None,
    ) -> S:
        """Return the state that a descriptor declares, with `namespace` as its current namespace.

        The first request creates the state.
        """
        try:
            registered = self._registered.get(descriptor.name)
        except AttributeError:
            check_type("descriptor", descriptor, StateDescriptor)
            raise
        if namespace is None:
            raise NullValueError("the namespace", f"state {descriptor.name!r}")
        if registered is None or (
            registered.declared is not descriptor
            and not same_declaration(registered.declared, descriptor)
        ):
            registered = self._register(descriptor, namespace, namespace_type, registered)
        state: S = registered.state
        state.set_current_namespace(namespace)
        return state

    def known(self, name: str) -> RegisteredState | None:
        """Return the registered state `name`, or None if no function has requested it."""
        return self._registered.get(name)

    def exposed_table(self, name: str) -> Any:
        """Return the table that the state object of the state `name` uses.

        If there is a journal, the table also records how to undo its changes.
        """
        table = self.tables[name]
        if self.journal is None:
            return table
        self._journaled.add(name)
        return self.journal.table(table)

    def holds_lists(self, name: str) -> bool:
        """Return whether the state `name` is a list state.

        This includes a restored state that no function has requested.
        """
        registered = self._registered.get(name)
        meta = self.restored.get(name) if registered is None else registered.meta
        return meta is not None and meta.kind is StateKind.LIST

    def _register(
        self,
        descriptor: StateDescriptor,
        namespace: Any,
        namespace_type: DeclaredKeyType[Any] | None,
        known: RegisteredState | None,
    ) -> RegisteredState:
        check_type("descriptor", descriptor, StateDescriptor)
        kind = infer_key_type(namespace) if namespace_type is None else namespace_type
        self._check_number(descriptor.name)
        fresh = self._describe(descriptor, self._codec(kind))
        if known is not None:
            self._check_redeclared(known, fresh)
            if known.descriptor.ttl_config == fresh.descriptor.ttl_config:
                fresh.times = known.times  # the clean-up also needs the notes of earlier objects
            fresh.state = self._made_state(fresh)
        else:
            self._migrate_restored(fresh)
            self._make(fresh)
        self._plan_cleanup(fresh)
        self._registered[descriptor.name] = fresh
        return fresh

    def _codec(self, declared: DeclaredKeyType[Any]) -> KeyCodec:
        find = self._parameters.registry.serializer
        return key_codec_for(declared, find).bind(self._current.pickles)

    def _check_number(self, name: str) -> None:
        """Raise TooManyStatesError if a snapshot with this further state could not be restored."""
        known = {*self._registered, *self._timers, *self.restored}
        most = self._parameters.config.restore.max_states
        if name not in known and len(known) >= most:
            raise TooManyStatesError("", name, most, "restore.max-states")

    def _make(self, fresh: RegisteredState) -> None:
        """Create the table and the state. After an error, restored rows remain as they were."""
        name = fresh.meta.name
        self.tables[name] = self._source.create_table(fresh)
        try:
            fresh.state = self._made_state(fresh)
            self._source.table_created(fresh)
        except BaseException:
            del self.tables[name]
            raise

    def _made_state(self, fresh: RegisteredState) -> Any:
        """Return a new state object. If there is a journal, the state must use its table."""
        name = fresh.meta.name
        self._journaled.discard(name)
        state = self._source.make_state(fresh)
        if self.journal is not None and name not in self._journaled:
            what = f"on_error='side_output' for state {name}, which a plugin has made"
            raise UnsupportedCapabilityError(self._current.backend, what)
        return state

    def _plan_cleanup(self, fresh: RegisteredState) -> None:
        name, ttl = fresh.meta.name, fresh.descriptor.ttl_config
        table: Any = self.tables[name]
        new = name not in self.restored and name not in self._registered
        strategies = ttl.cleanup if ttl else None
        self._sweeper.plan(fresh.meta, strategies, fresh.times, table, fresh=new)
        self._source.cleanup_planned(fresh)

    def _check_redeclared(self, registered: RegisteredState, fresh: RegisteredState) -> None:
        """Raise an error if a state in use is requested with other types.

        Other functions are allowed.
        """
        known = registered.meta
        check_kind(known, fresh.meta)
        if registered.descriptor.is_sorted is not fresh.descriptor.is_sorted:
            names = ("map", "sorted map")
            old, new = names if fresh.descriptor.is_sorted else reversed(names)
            raise StateConflictError(known.name, old, new)
        parts = ("namespace", "map_key", "value")
        changed = [part for part in parts if getattr(known, part) != getattr(fresh.meta, part)]
        if changed or self._migration(known, fresh) is not None:
            part = next(iter(changed), "value")
            old, new = _type_name(known, part), _type_name(fresh.meta, part)
            raise StateMigrationError(known.name, part.replace("_", " "), old, new, reason=_IN_USE)

    def _migrate_restored(self, fresh: RegisteredState) -> None:
        """Convert all stored entries of a restored state to the declared types.

        All entries are converted together, so that the state's description in the next snapshot is
        true for every entry.
        """
        stored = self.restored.get(fresh.meta.name)
        if stored is None:
            return
        addresses, migrate = self._address_change(stored, fresh), self._migration(stored, fresh)
        namespace, map_key = fresh.meta.namespace, fresh.meta.map_key
        made = attrs.evolve(stored, namespace=namespace, map_key=map_key)
        self._readdress(stored, made, addresses)
        if migrate is not None and self._rows is not None:
            self._rows.migrate_rows(fresh.meta.name, migrate)
            self.restored[fresh.meta.name] = fresh.meta

    def _address_change(self, stored: StateMeta, fresh: RegisteredState) -> AddressChange | None:
        check_kind(stored, fresh.meta)
        layout, keys = self._current.layout, self._current.codec
        return namespace_change(stored, layout, keys, fresh.namespace_codec, fresh.map_key_codec)

    def _readdress(self, stored: StateMeta, made: StateMeta, change: AddressChange | None) -> None:
        """Convert all stored physical keys of a restored state to the declared types."""
        if change is not None and self._rows is not None:
            self._rows.readdress_rows(stored.name, change)
            self.restored[stored.name] = made

    def _migration(self, stored: StateMeta, fresh: RegisteredState) -> CellMigration | None:
        serializer = fresh.descriptor.value_serializer()
        return cell_migration(stored, fresh.meta, serializer, self._parameters)

    def _describe(self, declared: StateDescriptor, namespace_codec: KeyCodec) -> RegisteredState:
        find = self._parameters.registry.serializer
        descriptor = declared.resolved(find, self._current.pickles)
        map_key = descriptor.map_key_codec()
        meta = StateMeta.from_descriptor(descriptor, namespace_codec)
        for other in self._registered.values():
            same = other.meta.query_name == meta.query_name != ""
            if same and other.meta.name != meta.name:
                raise StateNameError(meta.query_name, f"{other.meta.name!r} is queried by it")
        ttl, parameters = descriptor.ttl_config, self._parameters
        times = None if ttl is None else TtlTimes(ttl, parameters.clock, parameters.event_time)
        cells = cell_serializer(stamped_descriptor(descriptor, times))
        return RegisteredState(meta, declared, descriptor, namespace_codec, map_key, cells, times)

    # ---------------------------------------------------------------- timers

    def timer_queue(self, domain: str, namespace_type: DeclaredKeyType[Any]) -> TimerQueue:
        """Return the timers of a time domain. The first request creates the queue."""
        check_type("domain", domain, str)
        name = timer_state(domain)
        codec = self._codec(namespace_type)
        meta = timer_meta(domain, codec)
        if name not in self._timers:
            self._check_number(name)
            stored = self.restored.get(name, meta)
            keys = self._current.codec
            change = namespace_change(stored, self._current.layout, keys, codec)
            self._readdress(stored, meta, change)
            rows = self._source.create_timer_rows(name)
            self.tables[name] = rows
            self._timers[name] = (meta, self._queue(codec, rows))
        known, queue = self._timers[name]
        if known != meta:
            old, new = str(known.namespace), str(meta.namespace)
            raise StateMigrationError(name, "namespace", old, new, reason=_IN_USE)
        return queue

    def _queue(self, namespaces: KeyCodec, rows: TimerRows) -> TimerQueue:
        if self.journal is None:
            return TimerQueue(self._current, namespaces, rows)
        return JournaledTimerQueue(self._current, namespaces, rows, self.journal)

    def has_timers(self, domain: str) -> bool:
        """Return whether the time domain `domain` has a timer queue.

        This includes a restored queue that no function has requested.
        """
        name = timer_state(domain)
        return name in self._timers or name in self.restored

    def metas(self) -> list[StateMeta]:
        """Return the description of each state for a snapshot, sorted by name.

        This includes restored states that no function has requested. If a requested state uses the
        query name of such a restored state, the restored state loses the query name.
        """
        metas = {name: registered.meta for name, registered in self._registered.items()}
        taken = {meta.query_name for meta in metas.values()} - {""}
        for name, meta in self.restored.items():
            given_up = meta.query_name in taken
            metas.setdefault(name, attrs.evolve(meta, query_name="") if given_up else meta)
        metas.update({name: meta for name, (meta, _) in self._timers.items()})
        now = self._parameters.event_time.now_ms
        return [
            meta if meta.watermark is None else attrs.evolve(meta, watermark=now)
            for _, meta in sorted(metas.items())
        ]


def _type_name(meta: StateMeta, part: str) -> str:
    """Return the type of a state's keys or values for an error message."""
    kept = " with a time to live" if part == "value" and meta.ttl else ""
    return f"{getattr(meta, part)}{kept}"
