"""The base class of keyed backends, with snapshots and the working directory."""

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
from millpond.spi.backend import EntryStore, RestoredBytes, StateSize
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.portable_rows import Change, ChangeListener, StateShape
from millpond.spi.snapshots import SnapshotResult, Strategy
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import KeyCodec


class KeyedStateBackend(SubtaskStates, EntryStore):
    """The base class of keyed backends. An instance is the keyed state of one subtask.

    A backend is a context manager. A subclass implements ``EntryStore``. The method ``_choose`` of
    the current key runs for every row, and the methods of tables run for every access. All other
    methods run rarely.

    Attributes:
        capabilities: the capabilities that the backend's factory declares.
        listeners: functions that are called at each flush with the changed rows.
        restored_bytes: the number of bytes that restores have read.
        version: the name of the state's version; None if the state has changed since it got a name.
        discarded: the reason why a local copy of the state was deleted when the backend was opened;
            empty if none was deleted.
        leaves_copy: whether a backend may reopen the files in the directory later.
    """

    name: ClassVar[str]

    def __init__(self, parameters: KeyedBackendParameters, current: CurrentKey) -> None:
        super().__init__(parameters, current, self)
        self.capabilities = parameters.capabilities
        self._strategies: list[Strategy] = []  # filled by ``strategies``
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
        """The description of each restored state, whether or not a function has requested it."""
        return self.states.restored

    def expect_outside_bytes(self) -> None:
        """Decode pickles only if the configuration allows it, because bytes from outside follow.

        Raises:
            ConfigError: the keys are pickled, and the configuration does not allow pickle.
        """
        self.current.expect_outside_bytes()

    def state_metas(self) -> list[StateMeta]:
        """Return the description of each state for a snapshot.

        This includes restored states that no function has requested.
        """
        return self.states.metas()

    def native_metrics(self) -> Mapping[str, float]:
        """Return the metrics of the native library by name. By default there are none."""
        return {}

    def state_sizes(self) -> dict[str, StateSize]:
        """Return the size of each state as of the last flush, by the state's name.

        The cost must not depend on the number of entries. Entries that have expired count until
        they are removed. A backend that cannot tell a size leaves it out; by default there are
        none.
        """
        return {}

    def counters(self) -> dict[str, int]:
        """Return counters since the backend was opened, by name.

        ``expired_removed`` is the number of expired rows that were removed. A subclass may add
        more.
        """
        return {"expired_removed": self.sweeper.removed()}

    def sweep_metrics(self) -> dict[str, SweepMetrics]:
        """Return the metrics of the removal of expired entries, by state."""
        return self.sweeper.metrics()

    def flush(self, version: str | None = None) -> None:
        """Write all buffered changes to the store, and report them to the change listeners.

        If a serializer or the write of the store fails, all changes remain in the buffer. Reads
        still see them, and the next flush includes them.

        Args:
            version: the new name of the state's version, or None for no name. If nothing has
                changed since the state got its current name, that name remains.

        Raises:
            BackendFailedError: a change listener, or a flush that made room in the buffer, has
                failed before. Every method except ``close`` then raises this error.
        """
        self.current.require_open()
        check_type("version", version, str | None)
        self.sweeper.run()
        batch = self.write_changes(version)
        self.sweeper.flushed()
        self.report(batch)

    def add_change_listener(self, listener: ChangeListener) -> None:
        """Call `listener` at each flush with the changed rows.

        Some backends track changes only if they have a listener.
        """
        self.listeners.append(listener)

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None = None
    ) -> Future[SnapshotResult]:
        """Take a snapshot with the configured strategy.

        Args:
            checkpoint_id: a number that must be larger than in the call before; the first may be 0.
            storage: the storage of the snapshot's files.
            version: the name of the state's version; None for a random name.

        Returns:
            A future of the result, whose ``handle`` is None if there are no states.
        """
        name = self.parameters.config.state.snapshot.strategy
        return self._take(name, checkpoint_id, storage, version)

    def savepoint(self, checkpoint_id: int, storage: CheckpointStorage) -> Future[SnapshotResult]:
        """Take a savepoint, which consists of Parquet tables in a separate folder of `storage`.

        Any backend can restore a savepoint.
        """
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
        """Return the snapshot strategy `name`; raise ConfigError if there is none."""
        for strategy in self.strategies():
            if strategy.name == name:
                return strategy
        reason = f"expected one of {', '.join(self.strategy_names())}, got {name!r}"
        raise ConfigError("state.snapshot.strategy", reason)

    def strategy_names(self) -> list[str]:
        """Return the names of all snapshot strategies for this backend, sorted."""
        return sorted(strategy.name for strategy in self.strategies())

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Confirm a snapshot, so that later snapshots may refer to its files."""
        for strategy in self._strategies_to_notify(checkpoint_id):
            strategy.notify_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Cancel a snapshot and delete its files."""
        for strategy in self._strategies_to_notify(checkpoint_id):
            strategy.notify_aborted(checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """Delete the files of a confirmed snapshot, and of all snapshots with smaller ids.

        Files that later snapshots need remain. Ids must grow from snapshot to snapshot, as in
        Flink.
        """
        for strategy in self._strategies_to_notify(checkpoint_id):
            strategy.notify_subsumed(checkpoint_id)

    def _strategies_to_notify(self, checkpoint_id: int) -> list[Strategy]:
        """Return the strategies to notify; none if no strategy was used yet."""
        self.current.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        return self._strategies

    def shape(self) -> StateShape:
        """Return the description of all states as of now, with which each view begins."""
        return StateShape.of_states(self.parameters, self.key_codec, self.state_metas())

    def report(self, batch: Mapping[str, Sequence[Change]]) -> None:
        """Call the change listeners with the changed rows by state name."""
        try:
            for listener in self.listeners:
                listener(batch)
        except BaseException as error:
            self.fail(error)  # some listeners have got the change and others have not
            raise

    @override
    def close(self) -> None:
        """Release all resources. Changes that were not flushed are lost. May be called twice."""
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
        """Take over the open working directory, which ``close`` then closes.

        `discarded` is the reason why a local copy was deleted from it; empty if none was deleted.
        """
        self._directory = directory
        self.discarded = discarded or self.discarded

    def fail(self, cause: BaseException) -> None:
        """Let every later use raise an error, and never reopen the files in the directory."""
        self.current.fail(cause)
        self.forbid_local_copy()

    def forbid_local_copy(self) -> None:
        """Never reopen the files in the directory, because they may be wrong."""
        self.leaves_copy = False

    def disown(self) -> None:
        """Treat the backend as closed in this forked process, without releasing its resources."""
        self._ended = True
        self.current.close()
        if self._directory is not None:
            self._directory.disown()

    @abstractmethod
    def _close(self) -> None:
        """Close the store."""
