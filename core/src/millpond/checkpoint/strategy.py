"""The contract of a snapshot strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import TYPE_CHECKING, ClassVar

import attrs

from millpond.checkpoint.handles import KeyedStateHandle
from millpond.checkpoint.storage import CheckpointStorage

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend

__all__ = ["SnapshotResult", "SnapshotStrategy"]


@attrs.frozen
class SnapshotResult:
    """What a snapshot has come to.

    Attributes:
        handle: None where no state is registered.
        bytes_written: what this snapshot added to the storage.
        rows_written: how many rows that is.
    """

    handle: KeyedStateHandle | None
    bytes_written: int = 0
    rows_written: int = 0


class SnapshotStrategy(ABC):
    """One way to take snapshots of one opened backend."""

    name: ClassVar[str]

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend

    def start(self, restored: KeyedStateHandle | None) -> None:
        """The backend begins work, at exactly a confirmed snapshot, or empty or rescaled."""

    @abstractmethod
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """Take a snapshot; see ``KeyedStateBackend.snapshot``."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed: later ones may build on it."""

    def close(self) -> None:
        """Release what a running snapshot holds."""
