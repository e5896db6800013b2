"""The factory of RocksDB backends; importable without rocksdict."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, ClassVar

from millpond.backend import KeyedStateBackend
from millpond.spi import Capability, KeyedBackendParameters, StateBackend
from typing_extensions import override

from millpond_rocksdb.names import BACKEND


class RocksDBStateBackend(StateBackend):
    """Keeps state in RocksDB, for state larger than memory."""

    name: ClassVar[str] = BACKEND
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.LOCAL_COPY, Capability.PER_STATE_OPTIONS, Capability.ASYNC_SNAPSHOT}
    )

    @override
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Check the options here if rocksdict is installed; otherwise the workers check them."""
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
