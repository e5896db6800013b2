"""The interface of snapshot strategies, and the results of snapshots."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

import attrs

from millpond.storage.checkpoint_storage import CheckpointStorage


@attrs.frozen
class SnapshotResult:
    """The result of a snapshot.

    Attributes:
        handle: the description of the snapshot's files: a ``KeyedStateHandle``, or a
            ``SavepointHandle`` for a savepoint; None if there are no states.
        bytes_written: the number of bytes that this snapshot added to the storage.
        rows_written: the number of rows that this snapshot added to the storage.
    """

    handle: Any
    bytes_written: int = 0
    rows_written: int = 0


class Strategy(Protocol):
    """The parts of a snapshot strategy that the backend uses.

    The strategies of plugins derive from ``millpond.snapshots.strategy.SnapshotStrategy``, which
    documents these methods.
    """

    @property
    def name(self) -> str:
        """The name of the strategy in ``state.snapshot.strategy``."""

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """Take a snapshot."""

    def start(self, restored: Any) -> None:
        """Prepare for snapshots. `restored` is the restored snapshot, or None if there is none."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Handle the confirmation of a snapshot."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Handle the abort of a snapshot, which will never be confirmed."""

    def notify_subsumed(self, checkpoint_id: int) -> None:
        """Handle the news that a confirmed snapshot is no longer needed."""

    def close(self) -> None:
        """Release all resources, because the backend is closed."""


class RestoreOperation(Protocol):
    """An operation that fills a backend from snapshots."""

    def run(self) -> None:
        """Fill the backend with the state of all snapshots.

        Raises:
            CorruptSnapshotError: a file is damaged, missing, or not part of the snapshot.
            MaxParallelismError, StateMigrationError: the snapshot does not fit the backend.
        """
