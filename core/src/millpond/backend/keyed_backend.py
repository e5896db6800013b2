"""The keyed backend of one subtask: its states, snapshots and working directory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar

from typing_extensions import override

from millpond.arguments import CHECKPOINT_IDS, check_type, check_within
from millpond.backend.subtask_states import SubtaskStates
from millpond.backend.ttl_sweep import SweepMetrics
from millpond.backend.working_directory import WorkingDirectory
from millpond.errors import ConfigError
from millpond.spi.backend import EntryStore, RestoredBytes
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.portable_rows import Change, ChangeListener, StateShape
from millpond.spi.snapshots import SnapshotResult, Strategy
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import KeyCodec


class KeyedStateBackend(SubtaskStates, EntryStore):
    """The base of keyed backends; a context manager.

    A subclass implements ``EntryStore``: the tables, and portable rows in and out. The current
    key's ``_choose`` is called for every record and the tables' methods for every access;
    everything else is rare.

    Attributes:
        capabilities: the capabilities that the backend's factory declares.
        listeners: called at each flush with the changed rows.
        restored_bytes: the bytes that restores have read.
        version: the name of the state's version; None if the state has changed since it was named.
        discarded: why a local copy was deleted at the opening; empty if none was.
        leaves_copy: whether a backend may later reopen the files in the directory.
    """

    name: ClassVar[str]

    def __init__(self, parameters: KeyedBackendParameters, current: CurrentKey) -> None:
        super().__init__(parameters, current, self)
        self.capabilities = parameters.capabilities
        self._strategies: list[Strategy] = []  # filled at the first use
        self.listeners: list[ChangeListener] = []
        self.restored_bytes = RestoredBytes()
        self.version: str | None = None
        self.discarded = ""
        self.leaves_copy = True
        self._directory: WorkingDirectory | None = None
        self._ended = False

    @property
    def key_codec(self) -> KeyCodec:
        """The codec that encodes, checks and hashes keys."""
        return self.current.codec

    @property
    def restored(self) -> dict[str, StateMeta]:
        """The states that snapshots describe, requested or not."""
        return self.states.restored

    def expect_outside_bytes(self) -> None:
        """Stop trusting pickles; ConfigError if keys are pickled and that is not allowed."""
        self.current.expect_outside_bytes()

    def state_metas(self) -> list[StateMeta]:
        """Return all states of a snapshot: registered, and restored but not yet requested."""
        return self.states.metas()

    def native_metrics(self) -> Mapping[str, float]:
        """Return gauges of the native library by name; none by default."""
        return {}

    def counters(self) -> dict[str, int]:
        """Return counters since the opening, by name: ``expired_removed``; a store has more."""
        return {"expired_removed": self.sweeper.removed()}

    def sweep_metrics(self) -> dict[str, SweepMetrics]:
        """Return the work of each clean-up since the backend was opened."""
        return self.sweeper.metrics()

    def flush(self, version: str | None = None) -> None:
        """End a bundle: buffered changes reach the store and the change listeners.

        A failure before anything was stored, in a serializer or the store's write, leaves all
        changes in the buffer: reads still see them, and the next flush includes them.

        Args:
            version: the state's new version name; the present name remains if nothing changed
                since it was given. None: the state is at no named version.

        Raises:
            BackendFailedError: a change listener, or a flush in the middle of an operation, has
                failed before. Every call except closing raises it.
        """
        self.current.require_open()
        check_type("version", version, str | None)
        self.sweeper.run()
        batch = self.write_changes(version)
        self.sweeper.flushed()
        self.report(batch)

    def add_change_listener(self, listener: ChangeListener) -> None:
        """Report the changes of each flush to a listener; switches change tracking on."""
        self.listeners.append(listener)

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None = None
    ) -> Future[SnapshotResult]:
        """Take a snapshot by the configured strategy; ``checkpoint_id`` grows from 0 on.

        ``version`` is the name of this state, random by default. The ``handle`` of the result is
        None if no state is registered.
        """
        name = self.parameters.config.state.snapshot.strategy
        return self._take(name, checkpoint_id, storage, version)

    def savepoint(self, checkpoint_id: int, storage: CheckpointStorage) -> Future[SnapshotResult]:
        """Take a savepoint: Parquet tables in their own folder, which any backend can restore."""
        return self._take("savepoint", checkpoint_id, storage, None)

    def _take(
        self, strategy: str, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        self.current.require_open()
        check_within("checkpoint_id", checkpoint_id, *CHECKPOINT_IDS)
        check_type("version", version, str | None)
        return self.strategy(strategy).snapshot(checkpoint_id, storage, version)

    def strategies(self) -> list[Strategy]:
        """Return the snapshot strategies that plugins provide for this backend."""
        self._strategies = self._strategies or self.parameters.registry.snapshot_strategies(self)
        return self._strategies

    def strategy(self, name: str) -> Strategy:
        """Return a snapshot strategy by its name; ConfigError if there is none."""
        for strategy in self.strategies():
            if strategy.name == name:
                return strategy
        reason = f"expected one of {', '.join(self.strategy_names())}, got {name!r}"
        raise ConfigError("state.snapshot.strategy", reason)

    def strategy_names(self) -> list[str]:
        """Return the names of all snapshot strategies of this backend, sorted."""
        return sorted(strategy.name for strategy in self.strategies())

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Confirm a snapshot: later ones may build on it."""
        for strategy in self._strategies_to_notify(checkpoint_id):
            strategy.notify_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Abort a snapshot: cancel it, and delete its files."""
        for strategy in self._strategies_to_notify(checkpoint_id):
            strategy.notify_aborted(checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """Delete the files that only a confirmed snapshot, and those with smaller ids, need.

        The caller's ids must grow, as Flink's do, also for ``checkpoint.retained``.
        """
        for strategy in self._strategies_to_notify(checkpoint_id):
            strategy.notify_subsumed(checkpoint_id)

    def _strategies_to_notify(self, checkpoint_id: int) -> list[Strategy]:
        """Return the strategies to notify: none before the first use of a strategy."""
        self.current.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        return self._strategies

    def shape(self) -> StateShape:
        """Describe the state now; each view begins with it."""
        return StateShape.of_states(self.parameters, self.key_codec, self.state_metas())

    def report(self, batch: Mapping[str, Sequence[Change]]) -> None:
        """Call the listeners with the changed rows by state name."""
        try:
            for listener in self.listeners:
                listener(batch)
        except BaseException as error:
            self.fail(error)  # the other listeners may know half of a change
            raise

    @override
    def close(self) -> None:
        """Release everything; may be called twice. Changes that were not flushed are lost."""
        if self._ended:
            return
        self._ended = True
        self.current.close()
        try:
            for strategy in self._strategies:
                strategy.close()
            self._close()
            if self._directory is not None and self.leaves_copy:
                self._directory.leave(self.version)
        finally:
            if self._directory is not None:
                self._directory.close()

    def take_directory(self, directory: WorkingDirectory, discarded: str) -> None:
        """Own the working directory: closing the backend frees it."""
        self._directory = directory
        self.discarded = discarded or self.discarded

    def fail(self, cause: BaseException) -> None:
        """Refuse everything from now on; no backend may open the files in the directory."""
        self.current.fail(cause)
        self.forbid_local_copy()

    def forbid_local_copy(self) -> None:
        """Leave no local copy: something went wrong with the files in the directory."""
        self.leaves_copy = False

    def disown(self) -> None:
        """Count as closed in this forked process, and release nothing."""
        self._ended = True
        self.current.close()
        if self._directory is not None:
            self._directory.disown()

    @abstractmethod
    def _close(self) -> None:
        """Release the store."""
