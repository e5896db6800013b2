"""The core's own strategies, storages and restore, as a built-in plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from millpond.backend.keyed import KeyedStateBackend
from millpond.config import Config
from millpond.savepoints.savepoint_strategy import SavepointRestore, SavepointStrategy
from millpond.snapshots.handles import PORTABLE, SAVEPOINT_FORMAT
from millpond.snapshots.restore import RestoreOperation
from millpond.snapshots.strategies import ChangelogStrategy, FullStrategy
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.spi.backend import RestoreTarget
from millpond.spi.hooks import hookimpl
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.file_systems import (
    PYARROW_SCHEMES,
    fsspec_schemes,
    open_file_storage,
    open_fsspec_storage,
)
from millpond.storage.local_directory import open_local_storage
from millpond.storage.memory import MemoryStorage

MILLPOND_API = 1


@hookimpl
def millpond_snapshot_strategies(backend: KeyedStateBackend) -> Sequence[SnapshotStrategy]:
    """Provide ``full``, ``changelog`` and ``savepoint`` for every backend."""
    return [FullStrategy(backend), ChangelogStrategy(backend), SavepointStrategy(backend)]


@hookimpl(trylast=True)
def millpond_restore_operation(
    backend: RestoreTarget, handles: Sequence[Any]
) -> RestoreOperation | SavepointRestore | None:
    """Read portable snapshots and savepoints."""
    if handles[0].format == PORTABLE:
        return RestoreOperation(backend, handles)
    if handles[0].format == SAVEPOINT_FORMAT:
        return SavepointRestore(backend, handles)
    return None


@hookimpl
def millpond_checkpoint_storages(
    config: Config,
) -> Mapping[str, Callable[[str], CheckpointStorage]]:
    """Provide memory, local directories, pyarrow's file systems, and fsspec's if installed."""
    return {
        **dict.fromkeys(fsspec_schemes(), open_fsspec_storage),
        **dict.fromkeys(PYARROW_SCHEMES, partial(open_file_storage, config=config)),
        "file": open_local_storage,
        "memory": MemoryStorage,
    }
