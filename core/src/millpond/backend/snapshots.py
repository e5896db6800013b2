"""What a backend knows of snapshots: their results, and who takes them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

import attrs

from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = ["SnapshotResult", "Strategy"]


@attrs.frozen
class SnapshotResult:
    """What a snapshot has come to.

    Attributes:
        handle: a ``KeyedStateHandle``, of a savepoint a ``SavepointHandle``; None where no state
            is registered.
        bytes_written: what this snapshot added to the storage.
        rows_written: how many rows that is.
    """

    handle: Any
    bytes_written: int = 0
    rows_written: int = 0


class Strategy(Protocol):
    """What a backend asks of a snapshot strategy.

    Plugins derive theirs from ``millpond.checkpoint.SnapshotStrategy``, which describes it.
    """

    @property
    def name(self) -> str:
        """The word that ``state.snapshot.strategy`` names it by."""

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """Take a snapshot."""

    def start(self, restored: Any) -> None:
        """The backend begins work, at exactly a confirmed snapshot, or empty or rescaled."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """A snapshot will never count."""

    def notify_subsumed(self, checkpoint_id: int) -> None:
        """A confirmed snapshot is not needed any more."""

    def close(self) -> None:
        """The backend is closed."""
