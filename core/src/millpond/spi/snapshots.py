"""Snapshot strategies and their results."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

import attrs

from millpond.storage.checkpoint_storage import CheckpointStorage


@attrs.frozen
class SnapshotResult:
    """The result of a snapshot.

    Attributes:
        handle: a ``KeyedStateHandle``, or a ``SavepointHandle`` for a savepoint; None if no state
            is registered.
        bytes_written: the bytes that this snapshot added to the storage.
        rows_written: the rows that this snapshot added to the storage.
    """

    handle: Any
    bytes_written: int = 0
    rows_written: int = 0


class Strategy(Protocol):
    """The parts of a snapshot strategy that the backend uses.

    Plugins derive theirs from ``millpond.snapshots.strategy.SnapshotStrategy``, which describes it.
    """

    @property
    def name(self) -> str:
        """The strategy's name in ``state.snapshot.strategy``."""

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """Take a snapshot."""

    def start(self, restored: Any) -> None:
        """Note that the backend starts, from the snapshot `restored` or, for None, without one."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Note that a snapshot is confirmed."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Note that a snapshot was aborted and will never be confirmed."""

    def notify_subsumed(self, checkpoint_id: int) -> None:
        """Note that a confirmed snapshot is no longer needed."""

    def close(self) -> None:
        """Note that the backend is closed."""


class RestoreOperation(Protocol):
    """One way to fill a backend from handles."""

    def run(self) -> None:
        """Fill the backend with the state of all handles.

        Raises:
            CorruptSnapshotError: a file is damaged, missing or foreign.
            MaxParallelismError, StateMigrationError: the snapshot does not fit the backend.
        """
