"""The RocksDB backend: state on local disk, in one RocksDB per subtask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from millpond.spi import StateBackend, hookimpl

from millpond_rocksdb.factory import RocksDBStateBackend
from millpond_rocksdb.names import NATIVE_FORMAT

if TYPE_CHECKING:  # these modules import the native library
    from millpond.backend import KeyedStateBackend
    from millpond.snapshots.strategy import SnapshotStrategy
    from millpond.spi import RestoreTarget

    from millpond_rocksdb.native_restore import NativeRestore

__all__ = ["RocksDBStateBackend"]

MILLPOND_API = 1


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Provide the backend ``rocksdb``."""
    return [RocksDBStateBackend()]


@hookimpl
def millpond_snapshot_strategies(backend: KeyedStateBackend) -> Sequence[SnapshotStrategy]:
    """Provide ``incremental`` for RocksDB."""
    if backend.name != RocksDBStateBackend.name:
        return []
    from millpond_rocksdb.backend import RocksDBKeyedStateBackend  # noqa: PLC0415 - native
    from millpond_rocksdb.incremental import IncrementalStrategy  # noqa: PLC0415 - native

    return [IncrementalStrategy(backend)] if isinstance(backend, RocksDBKeyedStateBackend) else []


@hookimpl
def millpond_restore_operation(
    backend: RestoreTarget, handles: Sequence[Any]
) -> NativeRestore | None:
    """Restore RocksDB's own snapshots into any backend."""
    if handles[0].format != NATIVE_FORMAT:
        return None
    from millpond_rocksdb.native_restore import NativeRestore  # noqa: PLC0415 - native

    return NativeRestore(backend, handles)
