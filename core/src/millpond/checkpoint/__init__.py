"""Snapshots: storages, files, handles, strategies and restore."""

from millpond.checkpoint.handles import KeyedStateHandle, SnapshotFile
from millpond.checkpoint.restore import catch_up, restore_keyed
from millpond.checkpoint.storage import CheckpointStorage, checkpoint_storage
from millpond.checkpoint.strategy import SnapshotResult, SnapshotStrategy

__all__ = [
    "CheckpointStorage",
    "KeyedStateHandle",
    "SnapshotFile",
    "SnapshotResult",
    "SnapshotStrategy",
    "catch_up",
    "checkpoint_storage",
    "restore_keyed",
]
