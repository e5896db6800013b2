"""The core's own strategies, storages and restore, as a built-in plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from millpond.checkpoint.changelog import ChangelogStrategy
from millpond.checkpoint.full import FullStrategy
from millpond.checkpoint.handles import KeyedStateHandle
from millpond.checkpoint.restore import RestoreOperation
from millpond.checkpoint.storage import BUILTIN_STORAGES, CheckpointStorage
from millpond.checkpoint.strategy import SnapshotStrategy
from millpond.hookspecs import API_VERSION, hookimpl

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend

MILLPOND_API = API_VERSION


@hookimpl
def millpond_snapshot_strategies(backend: KeyedStateBackend) -> Sequence[SnapshotStrategy]:
    """Provide ``full`` and ``changelog`` for every backend."""
    return [FullStrategy(backend), ChangelogStrategy(backend)]


@hookimpl(trylast=True)
def millpond_restore_operation(
    backend: KeyedStateBackend, handles: Sequence[KeyedStateHandle]
) -> RestoreOperation | None:
    """Read portable snapshots."""
    portable = all(isinstance(handle, KeyedStateHandle) for handle in handles)
    return RestoreOperation(backend, handles) if portable else None


@hookimpl
def millpond_checkpoint_storages() -> Mapping[str, Callable[[str], CheckpointStorage]]:
    """Provide memory, and the file systems of pyarrow."""
    return BUILTIN_STORAGES
