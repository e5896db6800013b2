"""The keyed backend of one subtask: a façade over its parts.

The current key, the registry of states, the sweeper of expired entries and the snapshots are parts
of their own. A concrete backend adds how entries are stored: tables, and portable rows in and out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import INT64, check_type, check_within
from millpond.backend.capabilities import Capability
from millpond.backend.changes import Change, ChangeListener, ChangeListeners
from millpond.backend.current_key import CurrentKey
from millpond.backend.migration import CellMigration
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.ownership import WorkingDirectory
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.snapshots import SnapshotResult, Snapshots, Strategy
from millpond.backend.state_registry import RegisteredState, StateRegistry
from millpond.backend.state_view import StateShape, StateView
from millpond.backend.sweeper import Sweeper, SweepMetrics
from millpond.backend.tables import CellTable, MapTable
from millpond.backend.timer_queue import TimerQueue, TimerRows
from millpond.clock import Clock
from millpond.closing import Closeable
from millpond.config import Config
from millpond.errors import NullValueError
from millpond.keygroups import KeyGroupRange
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.interfaces import State
from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.envelope import stamped_descriptor
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import VOID_NAMESPACE, DeclaredKeyType, KeyCodec, VoidNamespace, signed64
from millpond.types.key_columns import codec_from_snapshot

__all__ = ["KeyedStateBackend", "StateContext"]

S = TypeVar("S", bound=State, default=Any)


@attrs.frozen
class StateContext:
    """What a state wrapper may use."""

    backend: KeyedStateBackend
    clock: Clock
    config: Config
    metrics: MetricRegistry


class KeyedStateBackend(Closeable):
    """Keyed state of one subtask; a context manager.

    Note for implementers: the current key's ``_choose`` is called for every record, the tables'
    methods for every access; everything else is rare.

    Args:
        parameters: what the backend is opened with.
        current: the current key, in the form that the backend's tables want.

    Attributes:
        current: the current key.
        states: the states, and what was restored of them.
        sweeper: removes expired entries.
        snapshots: the snapshot strategies.
        listeners: those whom each flush tells what it has changed.
        metrics: the metrics of the states.
        operator_state: the subtask's operator state, where it has some: part of every snapshot.
        version: what the state is called; None where it has changed since it was named.
        discarded: why a local copy was thrown away at the opening; empty where none was.
        trusted_files: a pattern of files in the directory of which the store checks each block it
            reads, so that nobody else need to; no files by default.
    """

    name: ClassVar[str]
    trusted_files: ClassVar[str] = ""

    def __init__(self, parameters: KeyedBackendParameters, current: CurrentKey) -> None:
        self.parameters = parameters
        self.max_parallelism = parameters.max_parallelism
        self.current = current
        self.sweeper = Sweeper(parameters.clock)
        self.states = StateRegistry(parameters, current, self.sweeper, self)
        self.snapshots = Snapshots(self._strategies, parameters.config.state.snapshot.strategy)
        self.listeners = ChangeListeners()
        self.metrics = MetricRegistry()
        self.operator_state: OperatorStateBackend | None = None
        self.version: str | None = None
        self.discarded = ""
        self._workplace: WorkingDirectory | None = None
        self._sound = True
        self._released = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the backend's factory declares."""
        return self.parameters.capabilities

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups of this subtask."""
        return self.parameters.key_group_range

    @property
    def key_codec(self) -> KeyCodec:
        """How keys are encoded, checked and hashed."""
        return self.current.codec

    @property
    def restored(self) -> dict[str, StateMeta]:
        """What snapshots say of states, requested or not."""
        return self.states.restored

    # ---------------------------------------------------------------- the current key

    def set_current_key(self, key: Any) -> None:
        """Choose the key that all states work on.

        Raises:
            NullValueError: the key is None.
            StateTypeError: it is not of the declared key type.
            KeyGroupRangeError: its key group belongs to another subtask.
        """
        if key is None:
            raise NullValueError("the key", str(self.parameters.operator))
        current = self.current
        codec = current.codec
        checked = codec.check(key)
        current.select(checked, signed64(codec.hash(checked)) % self.max_parallelism)

    def set_current_key_and_group(self, key: Any, key_group: int) -> None:
        """Choose a key that is known to be checked, with its key group, which is not hashed anew.

        The JVM has computed the group already where rows come from Spark.
        """
        self.current.select(key, key_group)

    @property
    def current_key(self) -> Any:
        """The current key; NoCurrentKeyError where there is none."""
        return self.current.key

    def expect_outside_bytes(self) -> None:
        """Bytes of a snapshot, a savepoint or another process come in: no pickle is trusted.

        Raises:
            ConfigError: the keys are pickled, and configuration does not allow it.
        """
        self.current.expect_outside_bytes()

    def require_open(self) -> None:
        """Raise BackendClosedError once the backend is closed, BackendFailedError if it failed."""
        self.current.require_open()

    # ---------------------------------------------------------------- states and timers

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = VOID_NAMESPACE,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """The state of a descriptor, set to a namespace; made at the first request.

        Asking again with an equal descriptor gives the same object; another descriptor of the
        same types gives one with its functions, over the same entries.

        Raises:
            StateConflictError: the name is used for another kind of state.
            StateMigrationError: stored state has another type.
            NullValueError: the namespace is None.
        """
        self.current.require_open()
        return self.states.state(descriptor, namespace, namespace_type)

    def timer_queue(
        self, domain: str, namespace_type: DeclaredKeyType[Any] = VoidNamespace
    ) -> TimerQueue:
        """The timers of a time domain, made at the first request; part of every snapshot.

        Args:
            domain: the time domain's name.
            namespace_type: the type of what timers are set under, the same at each request.

        Raises:
            StateMigrationError: they were stored in another form.
        """
        self.current.require_open()
        return self.states.timer_queue(domain, namespace_type)

    def has_timers(self, domain: str) -> bool:
        """Whether there is a queue of a domain, requested or restored."""
        return self.states.has_timers(domain)

    def state_metas(self) -> list[StateMeta]:
        """All states that a snapshot holds: registered, and restored but not yet requested."""
        return self.states.metas()

    def table_of(self, name: str) -> Any:
        """The table of a state under registration; for ``millpond_create_state``."""
        return self.states.tables[name]

    def make_state(self, registered: RegisteredState) -> Any:
        """The state object over a table, wrapped; plugins make and wrap it."""
        parameters = self.parameters
        raw = parameters.registry.hook.millpond_create_state(
            backend=self,
            descriptor=stamped_descriptor(registered.descriptor, parameters.clock),
            namespace_serializer=registered.namespace_codec,
        )
        context = StateContext(self, parameters.clock, parameters.config, self.metrics)
        return parameters.registry.wrap_state(
            raw, descriptor=registered.descriptor, context=context
        )

    @abstractmethod
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        """The table of a new state."""

    def table_created(self, registered: RegisteredState) -> None:
        """The table is in place: restored rows become its content, where they are not yet."""

    def cleanup_planned(self, registered: RegisteredState) -> None:
        """The sweep of a state begins: it can go on where another process has stopped."""

    @abstractmethod
    def create_timer_rows(self, name: str) -> TimerRows:
        """The rows of a timer queue; restored rows of that name become its content."""

    @abstractmethod
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Rewrite all stored values of a restored state that was not requested yet.

        The state is at no named version afterwards, and the change listeners are told. A value
        that ``migrate`` refuses leaves all values as they were.
        """

    # ---------------------------------------------------------------- metrics

    def native_metrics(self) -> Mapping[str, float]:
        """What the native library says of itself, as gauges by name; none by default."""
        return {}

    def counters(self) -> dict[str, int]:
        """What the backend has counted since it was opened, by name.

        ``expired_removed``, and what a kind of backend adds: ``store_reads`` and
        ``store_writes`` of a byte store, in rows.
        """
        swept = self.sweeper.metrics().values()
        return {"expired_removed": sum(each.removed for each in swept)}

    def sweep_metrics(self) -> dict[str, SweepMetrics]:
        """What the clean-up of each state with TTL has done since the backend was opened."""
        return self.sweeper.metrics()

    # ---------------------------------------------------------------- enumeration

    def keys(self, state_name: str, namespace: Any = VOID_NAMESPACE) -> Iterator[Any]:
        """The keys that hold something in a state and namespace, each once; in no order.

        An unknown state has no keys.
        """
        check_type("state_name", state_name, str)
        for key, found in self.keys_and_namespaces(state_name):
            if found == namespace:
                yield key

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """All pairs of key and namespace that hold something in a state, each once.

        Restored states count that nobody has requested yet. Attrs classes among their namespaces
        come as named tuples then, for only their declaration names the class.
        """
        self.current.require_open()
        check_type("state_name", state_name, str)
        registered = self.states.known(state_name)
        if registered is not None:
            yield from self._addresses(state_name, registered.namespace_codec)
        elif state_name in self.restored:
            stored = self.restored[state_name]
            if stored.kind is not StateKind.TIMER:
                yield from self._addresses(state_name, codec_from_snapshot(stored.namespace))

    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor[S],
        function: Callable[[Any, S], None],
        namespace: Any = VOID_NAMESPACE,
    ) -> None:
        """Call ``function(key, state)`` for every key of a state and namespace.

        The function may change the state. The current key is restored afterwards.
        """
        check_type("function", function, Callable)
        state = self.get_partitioned_state(descriptor, namespace)
        before = self.current.key_or_none
        try:
            for key in list(self.keys(descriptor.name, namespace)):
                self.set_current_key(key)
                state.set_current_namespace(namespace)
                function(key, state)
        finally:
            self.current.forget()
            if before is not None:
                self.set_current_key(before)

    def num_state_entries(self) -> int:
        """How many entries are stored: one per state, key and namespace; map entries singly."""
        self.require_open()
        return self._count_entries()

    # ---------------------------------------------------------------- snapshots

    def add_change_listener(self, listener: ChangeListener) -> None:
        """Have each flush report what it changed; switches change tracking on."""
        self.listeners.add(listener)

    @abstractmethod
    def flush(self, version: str | None = None) -> None:
        """End a bundle: buffered changes reach the store and the change listeners.

        What fails before anything was stored, a serializer or the store's write, leaves all
        changes in the buffer: they are read as before, and the next flush takes them along.

        Args:
            version: what the state is called from now on, unless nothing has changed since
                it got its present name; a store that survives the process keeps the name in
                the same atomic write. None: the state is at no named version.

        Raises:
            BackendFailedError: a change listener, or a flush in the middle of an operation, has
                failed before. Every other call raises it too; only closing is left.
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
        check_within("checkpoint_id", checkpoint_id, *INT64)
        check_type("version", version, str | None)
        return self.snapshots.strategy().snapshot(checkpoint_id, storage, version)

    def savepoint(self, checkpoint_id: int, storage: CheckpointStorage) -> Future[SnapshotResult]:
        """Take a savepoint: Parquet tables in a folder of their own, for any backend to restore.

        Args:
            checkpoint_id: a number for the savepoint.
            storage: where to.
        """
        self.require_open()
        check_within("checkpoint_id", checkpoint_id, *INT64)
        return self.snapshots.strategy("savepoint").snapshot(checkpoint_id, storage, None)

    def strategy(self, name: str) -> Strategy:
        """A snapshot strategy of this backend by its name; ConfigError where there is none."""
        return self.snapshots.strategy(name)

    def strategy_names(self) -> list[str]:
        """The names of all snapshot strategies of this backend, sorted."""
        return self.snapshots.names()

    def _strategies(self) -> list[Strategy]:
        found = self.parameters.registry.hook.millpond_snapshot_strategies(backend=self)
        return [strategy for group in found for strategy in group]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed: later ones may build on it."""
        self.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        for strategy in self.snapshots.used():
            strategy.notify_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A snapshot will never count: it is cancelled, and what it has written is deleted."""
        self.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        for strategy in self.snapshots.used():
            strategy.notify_aborted(checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """A confirmed snapshot is not needed any more: what only it uses is deleted."""
        self.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        for strategy in self.snapshots.used():
            strategy.notify_subsumed(checkpoint_id)

    def shape(self) -> StateShape:
        """What the state is like now, without its rows; a view begins with it."""
        return StateShape(
            metas=tuple(self.state_metas()),
            key_group_range=self.key_group_range,
            max_parallelism=self.max_parallelism,
            key=self.key_codec.snapshot(),
            now=self.parameters.clock.now_ms,
        )

    @abstractmethod
    def freeze(self) -> StateView:
        """A picture of all flushed entries, which later changes do not touch."""

    def report(self, batch: Mapping[str, Sequence[Change]]) -> None:
        """Tell the listeners of changed rows; where that fails, the backend has failed."""
        try:
            self.listeners.tell(batch)
        except BaseException as error:
            self.fail(error)
            raise

    def expect_states(self, names: Iterable[str]) -> None:
        """Learn, before ``load_rows``, of which states there may be rows.

        Nothing by default; for stores that make room for all of them sooner than for each.
        """

    @abstractmethod
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Put portable rows of a state into the store; None as a value removes."""

    # ---------------------------------------------------------------- life cycle

    @override
    def close(self) -> None:
        """Release everything; may be called twice. What was not flushed is gone."""
        if self._released:
            return
        self._released = True
        self.current.close()
        try:
            self.snapshots.close()
            self._close()
            if self._workplace is not None and self._sound and not self.current.failed:
                self._workplace.seal(self.version, self.trusted_files)
        finally:
            if self._workplace is not None:
                self._workplace.close()

    def works_in(self, workplace: WorkingDirectory, discarded: str) -> None:
        """Be given the directory, to be closed with the backend."""
        self._workplace = workplace
        if discarded:
            self.discarded = discarded

    def fail(self, cause: BaseException) -> None:
        """Refuse everything from now on; what is left in the directory is of no use either."""
        self.current.fail(cause)
        self.distrust()

    def distrust(self) -> None:
        """Have nobody open what will be left in the directory: something went wrong with it."""
        self._sound = False

    def disown(self) -> None:
        """Be closed in this process, which has inherited the backend, and release nothing."""
        self._released = True
        self.current.close()
        if self._workplace is not None:
            self._workplace.disown()

    @abstractmethod
    def _addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        """Key and namespace of what a state holds, each pair once; may be changed meanwhile."""

    @abstractmethod
    def _count_entries(self) -> int:
        """The number of entries of all states."""

    @abstractmethod
    def _close(self) -> None:
        """Release the store."""
