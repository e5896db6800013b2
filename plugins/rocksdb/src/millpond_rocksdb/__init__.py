"""The RocksDB backend, which keeps state on local disk, in one RocksDB for each subtask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

from millpond.backend import KeyedStateBackend
from millpond.spi import Capability, KeyedBackendParameters, StateBackend, hookimpl
from typing_extensions import override

from millpond_rocksdb.native_files import NATIVE_FORMAT

if TYPE_CHECKING:  # these modules import the native library
    from millpond.snapshots.strategy import SnapshotStrategy
    from millpond.spi import RestoreTarget

    from millpond_rocksdb.incremental import NativeRestore


class RocksDBStateBackend(StateBackend):
    """The backend that keeps state in RocksDB, for state larger than memory."""

    name: ClassVar[str] = "rocksdb"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.LOCAL_COPY, Capability.PER_STATE_OPTIONS, Capability.ASYNC_SNAPSHOT}
    )

    @override
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Check the options if rocksdict is installed. If it is not, the workers check them."""
        with suppress(ImportError):
            from millpond_rocksdb.options import RocksDBOptions  # noqa: PLC0415 - native

            RocksDBOptions.structured(options)

    @override
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        from millpond_rocksdb.backend import RocksDBKeyedStateBackend  # noqa: PLC0415 - native

        return RocksDBKeyedStateBackend(parameters)

    @override
    def native_version(self) -> str:
        import rocksdict  # noqa: F401, PLC0415 - raises if it is not installed

        return f"rocksdict {version('rocksdict')}"


MILLPOND_API = 1


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Return the backend ``rocksdb``."""
    return [RocksDBStateBackend()]


@hookimpl
def millpond_snapshot_strategies(backend: KeyedStateBackend) -> Sequence[SnapshotStrategy]:
    """Return the strategy ``incremental`` if the backend is RocksDB."""
    if backend.name != RocksDBStateBackend.name:
        return []
    from millpond_rocksdb.backend import RocksDBKeyedStateBackend  # noqa: PLC0415 - native
    from millpond_rocksdb.incremental import IncrementalStrategy  # noqa: PLC0415 - native

    return [IncrementalStrategy(backend)] if isinstance(backend, RocksDBKeyedStateBackend) else []


@hookimpl
def millpond_restore_operation(
    backend: RestoreTarget, handles: Sequence[Any]
) -> NativeRestore | None:
    """Return the operation that restores snapshots of RocksDB's own files into any backend."""
    if handles[0].format != NATIVE_FORMAT:
        return None
    from millpond_rocksdb.incremental import NativeRestore  # noqa: PLC0415 - native

    return NativeRestore(backend, handles)
