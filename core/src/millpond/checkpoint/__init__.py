"""Snapshots: storages, files, handles, strategies and restore."""

from millpond.backend.snapshot_strategies import SnapshotResult
from millpond.checkpoint.handles import KeyedStateHandle, SnapshotFile
from millpond.checkpoint.output_stream import CheckpointStreamFactory, StreamStateHandle
from millpond.checkpoint.restore import catch_up, restore_keyed
from millpond.checkpoint.savepoint import (
    SavepointHandle,
    SavepointStrategy,
    locate_savepoint,
    rekey_savepoint,
    seal_savepoint,
)
from millpond.checkpoint.strategies.base import BlankHandle, SnapshotStrategy
from millpond.storage.checkpoint_storage import CheckpointStorage, open_storage

__all__ = [
    "BlankHandle",
    "CheckpointStorage",
    "CheckpointStreamFactory",
    "KeyedStateHandle",
    "SavepointHandle",
    "SavepointStrategy",
    "SnapshotFile",
    "SnapshotResult",
    "SnapshotStrategy",
    "StreamStateHandle",
    "catch_up",
    "locate_savepoint",
    "open_storage",
    "rekey_savepoint",
    "restore_keyed",
    "seal_savepoint",
]
