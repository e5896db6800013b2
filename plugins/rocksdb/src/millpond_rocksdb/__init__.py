"""The RocksDB backend: state on local disk, in one RocksDB per subtask."""

from collections.abc import Iterable

from millpond.backend import StateBackend
from millpond.hookspecs import API_VERSION, hookimpl

from millpond_rocksdb.factory import RocksDBStateBackend

__all__ = ["RocksDBStateBackend", "millpond_state_backends"]

MILLPOND_API = API_VERSION


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Provide the backend ``rocksdb``."""
    return [RocksDBStateBackend()]
