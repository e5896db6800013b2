"""The keyed backend of one subtask: key context, state registry, enumeration, life cycle.

A concrete backend adds how entries are stored: tables, and portable rows in and out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import attrs

from millpond.backend.capabilities import Capability
from millpond.backend.cells import cell_serializer
from millpond.backend.changes import Change, ChangeListener
from millpond.backend.cleanup import Sweep, SweepFigures
from millpond.backend.compat import CellMigration, cell_migration
from millpond.backend.keycontext import KeyContext
from millpond.backend.operatorstate import OperatorStateBackend
from millpond.backend.spi import KeyedBackendParameters, StateContext, StateMeta
from millpond.backend.tables import CellTable, MapTable
from millpond.backend.timers import TimerQueue, TimerRows, timer_meta, timer_state
from millpond.backend.view import StateView
from millpond.errors import (
    ConfigError,
    NullValueError,
    StateMigrationError,
    StateNameError,
)
from millpond.state.descriptors import StateDescriptor
from millpond.state.metrics.registry import MetricRegistry
from millpond.state.ttl.envelope import stored_descriptor
from millpond.types import (
    VOID_NAMESPACE,
    KeyCodec,
    TypeSerializer,
    VoidNamespace,
    infer_key_type,
    key_codec_for,
)

if TYPE_CHECKING:
    from millpond.checkpoint.storage import CheckpointStorage
    from millpond.checkpoint.strategy import SnapshotResult, SnapshotStrategy

__all__ = ["KeyedStateBackend", "RegisteredState"]


@attrs.define
class RegisteredState:
    """A state that was requested by its descriptor."""

    meta: StateMeta
    descriptor: StateDescriptor
    namespace_codec: KeyCodec
    map_key_codec: KeyCodec | None
    serializer: TypeSerializer[Any]
    state: Any = None


class KeyedStateBackend(KeyContext):
    """Keyed state of one subtask; a context manager.

    Attributes:
        operator_state: the subtask's operator state, where it has some: part of every snapshot.

    Note for implementers: ``_select`` is called for every record, the tables' methods for
    every access; everything else is rare. Override ``_unselect`` and ``_close`` as needed.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        super().__init__(parameters)
        self.metrics = MetricRegistry()
        self.restored: dict[str, StateMeta] = {}
        self.version: str | None = None
        self.operator_state: OperatorStateBackend | None = None
        self._registered: dict[str, RegisteredState] = {}
        self._tables: dict[str, CellTable | MapTable | TimerRows] = {}
        self._timers: dict[str, tuple[StateMeta, TimerQueue]] = {}
        self._listeners: list[ChangeListener] = []
        self._sweeps: dict[str, Sweep] = {}
        self._strategies: list[SnapshotStrategy] | None = None

    # ---------------------------------------------------------------- states

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor,
        namespace: Any = VOID_NAMESPACE,
        namespace_type: Any = None,
    ) -> Any:
        """The state of a descriptor, set to a namespace; made at the first request.

        Asking again with an equal descriptor gives the same object; another descriptor of the
        same types gives one with its functions, over the same entries.

        Raises:
            StateConflictError: the name is used for another kind of state.
            StateMigrationError: stored state has another type.
            NullValueError: the namespace is None.
        """
        self.require_open()
        if namespace is None:
            raise NullValueError("the namespace", f"state {descriptor.name!r}")
        registered = self._registered.get(descriptor.name)
        if registered is None or (
            registered.descriptor is not descriptor and registered.descriptor != descriptor
        ):
            registered = self._register(descriptor, namespace, namespace_type, registered)
        registered.state.set_current_namespace(namespace)
        return registered.state

    def _register(
        self,
        descriptor: StateDescriptor,
        namespace: Any,
        namespace_type: Any,
        known: RegisteredState | None,
    ) -> RegisteredState:
        kind = infer_key_type(namespace) if namespace_type is None else namespace_type
        fresh = self._describe(descriptor, key_codec_for(kind))
        if known is not None:
            self._check_redeclared(known.meta, fresh)
        else:
            self._migrate_restored(fresh)
            self._tables[descriptor.name] = self._create_table(fresh)
        self._plan_cleanup(fresh)
        fresh.state = self._make_state(fresh)
        self._registered[descriptor.name] = fresh
        return fresh

    def _plan_cleanup(self, fresh: RegisteredState) -> None:
        name, ttl = fresh.meta.name, fresh.descriptor.ttl_config
        if ttl is None or not ttl.cleanup.in_background:
            self._sweeps.pop(name, None)
        else:
            table: Any = self._tables[name]
            self._sweeps[name] = Sweep(
                fresh.meta, ttl.cleanup, self.parameters.clock.now(), table.sweep
            )

    def native_metrics(self) -> Mapping[str, float]:
        """What the native library says of itself, as gauges by name; none by default."""
        return {}

    def counters(self) -> dict[str, int]:
        """What the backend has counted since it was opened, by name.

        ``expired_removed``, and what a kind of backend adds: ``store_reads`` and
        ``store_writes`` of a byte store, in rows.
        """
        figures = self._sweeps.values()
        return {"expired_removed": sum(sweep.figures.removed for sweep in figures)}

    def remove_expired(self) -> None:
        """Look at some entries of the states with TTL; each flush begins with this."""
        if self._sweeps:
            now = self.parameters.clock.now()
            for name, sweep in self._sweeps.items():
                table: Any = self._tables[name]
                sweep.run(table.changed_entries(), now)

    def sweep_figures(self) -> dict[str, SweepFigures]:
        """What the clean-up of each state with TTL has done since the backend was opened."""
        return {name: attrs.evolve(sweep.figures) for name, sweep in self._sweeps.items()}

    def _check_redeclared(self, known: StateMeta, fresh: RegisteredState) -> None:
        """A state in use can be declared again with other functions, not with another type."""
        if self._migration(known, fresh) is not None or known.value != fresh.meta.value:
            old, new = str(known.value), str(fresh.meta.value)
            reason = "the state is in use; a type changes across a restore only"
            raise StateMigrationError(known.name, "value", old, new, reason=reason)

    def _migrate_restored(self, fresh: RegisteredState) -> None:
        """Bring all stored entries of a restored state to the declared type, at once.

        So there is never a mixture: what the next snapshot says of the state holds for every
        entry in it.
        """
        stored = self.restored.get(fresh.meta.name)
        migrate = None if stored is None else self._migration(stored, fresh)
        if migrate is not None:
            self.migrate_rows(fresh.meta.name, migrate)

    def _migration(self, stored: StateMeta, fresh: RegisteredState) -> CellMigration | None:
        serializer = fresh.descriptor.value_serializer()
        return cell_migration(stored, fresh.meta, serializer, self.parameters.clock.now())

    def _describe(self, descriptor: StateDescriptor, namespace_codec: KeyCodec) -> RegisteredState:
        map_key = descriptor.map_key_codec()
        meta = StateMeta.of(descriptor, namespace_codec)
        if meta.value.id == "pickle":
            self._check_pickle(meta)
        self._check_query_name(meta)
        stored = stored_descriptor(descriptor, self.parameters.clock)
        return RegisteredState(meta, descriptor, namespace_codec, map_key, cell_serializer(stored))

    def _check_query_name(self, meta: StateMeta) -> None:
        for other in self._registered.values():
            same = other.meta.query_name == meta.query_name != ""
            if same and other.meta.name != meta.name:
                raise StateNameError(meta.query_name, f"{other.meta.name!r} is queried by it")

    def _check_pickle(self, meta: StateMeta) -> None:
        restored = meta.name in self.restored
        if restored and not self.parameters.config.serialization.allow_pickle:
            raise ConfigError(
                "serialization.allow-pickle",
                f"state {meta.name!r} was stored with pickle, which can run code when it is "
                "read; set it to true if you trust the snapshot",
            )

    def _make_state(self, registered: RegisteredState) -> Any:
        parameters = self.parameters
        raw = parameters.registry.hook.millpond_create_state(
            backend=self,
            descriptor=stored_descriptor(registered.descriptor, parameters.clock),
            namespace_serializer=registered.namespace_codec,
        )
        context = StateContext(self, parameters.clock, parameters.config, self.metrics)
        return parameters.registry.wrap_state(
            raw, descriptor=registered.descriptor, context=context
        )

    def timer_queue(self, domain: str, namespace_type: Any = VoidNamespace) -> TimerQueue:
        """The timers of a time domain, made at the first request; part of every snapshot.

        Args:
            domain: the time domain's name.
            namespace_type: the type of what timers are set under, the same at each request.

        Raises:
            StateMigrationError: they were stored in another form.
        """
        self.require_open()
        name = timer_state(domain)
        if name not in self._timers:
            codec = key_codec_for(namespace_type)
            meta = timer_meta(domain, codec)
            stored = self.restored.get(name, meta)
            if stored != meta:
                old, new = str(stored.namespace), str(meta.namespace)
                raise StateMigrationError(name, "namespace", old, new)
            rows = self._create_timer_rows(name)
            self._tables[name] = rows
            self._timers[name] = (meta, TimerQueue(self, codec, rows))
        return self._timers[name][1]

    def has_timers(self, domain: str) -> bool:
        """Whether there is a queue of a domain, requested or restored."""
        name = timer_state(domain)
        return name in self._timers or name in self.restored

    def table_of(self, name: str) -> Any:
        """The table of a state under registration; for ``millpond_create_state``."""
        return self._tables[name]

    # ---------------------------------------------------------------- enumeration

    def keys(self, state_name: str, namespace: Any = VOID_NAMESPACE) -> Iterator[Any]:
        """The keys that hold something in a state and namespace, each once; in no order.

        An unknown state has no keys.
        """
        for key, found in self.keys_and_namespaces(state_name):
            if found == namespace:
                yield key

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """All pairs of key and namespace that hold something in a state, each once."""
        self.require_open()
        registered = self._registered.get(state_name)
        if registered is not None:
            yield from self._addresses(registered)

    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor,
        function: Callable[[Any, Any], None],
        namespace: Any = VOID_NAMESPACE,
    ) -> None:
        """Call ``function(key, state)`` for every key of a state and namespace.

        The function may change the state. The current key is restored afterwards.
        """
        state = self.get_partitioned_state(descriptor, namespace)
        before = self._current_key
        try:
            for key in list(self.keys(descriptor.name, namespace)):
                self.set_current_key(key)
                state.set_current_namespace(namespace)
                function(key, state)
        finally:
            self.forget_key()
            if before is not None:
                self.set_current_key(before)

    def num_state_entries(self) -> int:
        """How many entries are stored: one per state, key and namespace; map entries singly."""
        self.require_open()
        return self._count_entries()

    # ---------------------------------------------------------------- snapshots

    def add_change_listener(self, listener: ChangeListener) -> None:
        """Have each flush report what it changed; switches change tracking on."""
        self._listeners.append(listener)

    @abstractmethod
    def flush(self, version: str | None = None) -> None:
        """End a bundle: buffered changes reach the store and the change listeners.

        Args:
            version: what the state is called from now on, unless nothing has changed since
                it got its present name; a store that survives the process keeps the name in
                the same atomic write. None: the state is at no named version.
        """

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None = None
    ) -> Future[SnapshotResult]:
        """Take a snapshot by the configured strategy.

        Args:
            checkpoint_id: a number larger than those before.
            storage: where to.
            version: the name of this state of things; a random one by default.

        Returns:
            A future of the result, whose ``handle`` is None where no state is registered.
        """
        self.require_open()
        return self.strategy(self.parameters.config.state.snapshot.strategy).snapshot(
            checkpoint_id, storage, version
        )

    def savepoint(self, checkpoint_id: int, storage: CheckpointStorage) -> Future[SnapshotResult]:
        """Take a savepoint: Parquet tables in a folder of their own, for any backend to restore.

        Args:
            checkpoint_id: a number for the savepoint.
            storage: where to.
        """
        self.require_open()
        return self.strategy("savepoint").snapshot(checkpoint_id, storage, None)

    def strategy(self, name: str) -> SnapshotStrategy:
        """A snapshot strategy of this backend by its name; ConfigError where there is none."""
        if self._strategies is None:
            found = self.parameters.registry.hook.millpond_snapshot_strategies(backend=self)
            self._strategies = [strategy for group in found for strategy in group]
        for strategy in self._strategies:
            if strategy.name == name:
                return strategy
        names = ", ".join(sorted(strategy.name for strategy in self._strategies))
        raise ConfigError("state.snapshot.strategy", f"{name!r} is none of: {names}")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed: later ones may build on it."""
        self.require_open()
        for strategy in self._strategies or ():
            strategy.notify_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A snapshot will never count: it is cancelled, and what it has written is deleted."""
        self.require_open()
        for strategy in self._strategies or ():
            strategy.notify_aborted(checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """A confirmed snapshot is not needed any more: what only it uses is deleted."""
        self.require_open()
        for strategy in self._strategies or ():
            strategy.notify_subsumed(checkpoint_id)

    def state_metas(self) -> list[StateMeta]:
        """All states that a snapshot holds: registered, and restored but not yet requested."""
        metas = {**self.restored, **{name: r.meta for name, r in self._registered.items()}}
        metas.update({name: meta for name, (meta, _) in self._timers.items()})
        return [metas[name] for name in sorted(metas)]

    @abstractmethod
    def freeze(self) -> StateView:
        """A picture of all flushed entries, which later changes do not touch."""

    @abstractmethod
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Rewrite all stored values of a restored state that was not requested yet.

        The state is at no named version afterwards, and the change listeners are told.
        """

    def _report(self, state_name: str, changes: Sequence[Change]) -> None:
        """Tell the listeners of rows that were changed outside of a flush."""
        self.version = None
        for listener in self._listeners:
            listener({state_name: changes})

    @abstractmethod
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Put portable rows of a state into the store; None as a value removes."""

    # ---------------------------------------------------------------- life cycle

    def close(self) -> None:
        """Release everything; may be called twice. What was not flushed is gone."""
        if self._closed:
            return
        self._closed = True
        self.forget_key()
        for strategy in self._strategies or ():
            strategy.close()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def _create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        """The table of a new state; restored rows of that name become its content."""

    @abstractmethod
    def _create_timer_rows(self, name: str) -> TimerRows:
        """The rows of a timer queue; restored rows of that name become its content."""

    @abstractmethod
    def _addresses(self, registered: RegisteredState) -> Iterator[tuple[Any, Any]]:
        """Key and namespace of what a state holds, each pair once; may be changed meanwhile."""

    @abstractmethod
    def _count_entries(self) -> int:
        """The number of entries of all states."""

    @abstractmethod
    def _close(self) -> None:
        """Release the store."""
