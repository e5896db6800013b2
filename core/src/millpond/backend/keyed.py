"""The keyed backend of one subtask: key context, state registry, enumeration, life cycle.

A concrete backend adds how entries are stored: tables, and portable rows in and out.
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
from millpond.backend.changes import Change, ChangeListener
from millpond.backend.cleanup import SweepFigures
from millpond.backend.ownership import WorkingDirectory
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.snapshots import SnapshotResult, Strategy
from millpond.backend.state_registry import RegisteredState, StateRegistry
from millpond.backend.state_view import StateShape, StateView
from millpond.clock import Clock
from millpond.closing import Closeable
from millpond.config import Config
from millpond.errors import ConfigError
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.interfaces import State
from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.state.ttl.envelope import stored_descriptor
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import VOID_NAMESPACE, KeyCodec
from millpond.types.key_columns import codec_from_snapshot
from millpond.untrusted import unreadable

__all__ = ["KeyedStateBackend", "RegisteredState", "StateContext", "addresses_of"]

S = TypeVar("S", bound=State, default=Any)


@attrs.frozen
class StateContext:
    """What a state wrapper may use."""

    backend: KeyedStateBackend
    clock: Clock
    config: Config
    metrics: MetricRegistry


def addresses_of(
    physical: Iterable[bytes], keys: KeyCodec, namespaces: KeyCodec, prefix_bytes: int
) -> Iterator[tuple[Any, Any]]:
    """Key and namespace of physical keys; once where those of a map follow each other."""
    last = None
    for address in physical:
        try:
            key, start = keys.decode(address, prefix_bytes)
            namespace, end = namespaces.decode(address, start)
        except Exception as error:
            raise unreadable("", "", address, error) from error
        if address[:end] != last:
            last = address[:end]
            yield key, namespace


class KeyedStateBackend(StateRegistry, Closeable):
    """Keyed state of one subtask; a context manager.

    Note for implementers: ``_select`` is called for every record, the tables' methods for
    every access; everything else is rare. Override ``_unselect`` and ``_close`` as needed.

    Attributes:
        version: what the state is called; None where it has changed since it was named.
        discarded: why a local copy was thrown away at the opening; empty where none was.
        trusted_files: a pattern of files in the directory of which the store checks each block it
            reads, so that nobody else need to; no files by default.
    """

    trusted_files: ClassVar[str] = ""
    # Of the class until they change: CPython reads attributes of an instance more slowly once it
    # has 30 of them, and those of the current key are read for every record.
    discarded = ""
    _workplace: WorkingDirectory | None = None
    _sound = True
    _released = False

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        super().__init__(parameters)
        self.version: str | None = None
        self._listeners: list[ChangeListener] = []
        self._strategies: list[Strategy] | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the backend's factory declares."""
        return self.parameters.capabilities

    @override
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

    # ---------------------------------------------------------------- figures

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
            now = self.parameters.clock.now_ms
            for name, sweep in self._sweeps.items():
                table: Any = self._tables[name]
                sweep.run(table.changed_entries(), now)

    def _all_flushed(self) -> None:
        """Nothing is buffered any more: what is written from now on is not older than now."""
        if self._sweeps:
            now = self.parameters.clock.now_ms
            for sweep in self._sweeps.values():
                sweep.flushed(now)

    def sweep_figures(self) -> dict[str, SweepFigures]:
        """What the clean-up of each state with TTL has done since the backend was opened."""
        return {name: attrs.evolve(sweep.figures) for name, sweep in self._sweeps.items()}

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
        self.require_open()
        check_type("state_name", state_name, str)
        registered = self._registered.get(state_name)
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
        check_within("checkpoint_id", checkpoint_id, *INT64)
        return self.strategy("savepoint").snapshot(checkpoint_id, storage, None)

    def strategy(self, name: str) -> Strategy:
        """A snapshot strategy of this backend by its name; ConfigError where there is none."""
        for strategy in self._known_strategies():
            if strategy.name == name:
                return strategy
        names = ", ".join(self.strategy_names())
        raise ConfigError("state.snapshot.strategy", f"expected one of {names}, got {name!r}")

    def strategy_names(self) -> list[str]:
        """The names of all snapshot strategies of this backend, sorted."""
        return sorted(strategy.name for strategy in self._known_strategies())

    def _known_strategies(self) -> list[Strategy]:
        if self._strategies is None:
            found = self.parameters.registry.hook.millpond_snapshot_strategies(backend=self)
            self._strategies = [strategy for group in found for strategy in group]
        return self._strategies

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed: later ones may build on it."""
        self.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        for strategy in self._strategies or ():
            strategy.notify_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A snapshot will never count: it is cancelled, and what it has written is deleted."""
        self.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        for strategy in self._strategies or ():
            strategy.notify_aborted(checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """A confirmed snapshot is not needed any more: what only it uses is deleted."""
        self.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        for strategy in self._strategies or ():
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

    def _report(self, state_name: str, changes: Sequence[Change]) -> None:
        """Tell the listeners of rows that were changed outside of a flush."""
        self.version = None
        self._tell({state_name: changes})

    def _tell(self, batch: Mapping[str, Sequence[Change]]) -> None:
        """Call the change listeners; where one misses something, the backend has failed."""
        try:
            for listener in self._listeners:
                listener(batch)
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
        self._released = self._closed = True
        self.forget_key()
        try:
            for strategy in self._strategies or ():
                strategy.close()
            self._close()
            if self._workplace is not None and self._sound and self._failure is None:
                self._workplace.seal(self.version, self.trusted_files)
        finally:
            if self._workplace is not None:
                self._workplace.close()

    def works_in(self, workplace: WorkingDirectory, discarded: str) -> None:
        """Be given the directory, to be closed with the backend."""
        self._workplace = workplace
        if discarded:
            self.discarded = discarded

    @override
    def fail(self, cause: BaseException) -> None:
        """Nor is what it leaves in its directory of any use."""
        super().fail(cause)
        self.distrust()

    def distrust(self) -> None:
        """Have nobody open what will be left in the directory: something went wrong with it."""
        self._sound = False

    def disown(self) -> None:
        """Be closed in this process, which has inherited the backend, and release nothing."""
        self._released = self._closed = True
        self.forget_key()
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
