"""RocksDB's keyed backend: the byte-store base over RocksDBStore."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from millpond.backend.bytestore import ByteStore, ByteStoreBackend
from millpond.backend.capabilities import Capability
from millpond.backend.spi import KeyedBackendParameters

from millpond_rocksdb.factory import RocksDBStateBackend
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

__all__ = ["RocksDBKeyedStateBackend"]

_FOLDER = "rocksdb"


class RocksDBKeyedStateBackend(ByteStoreBackend):
    """Keyed state in RocksDB."""

    name: ClassVar[str] = RocksDBStateBackend.name
    capabilities: ClassVar[frozenset[Capability]] = RocksDBStateBackend.capabilities

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self._options = RocksDBOptions.from_mapping(parameters.options)
        super().__init__(parameters)

    def open_store(self, directory: Path) -> ByteStore:
        """See the base class."""
        return RocksDBStore(directory / _FOLDER, self._options)

    def destroy_store(self, directory: Path) -> None:
        """See the base class."""
        shutil.rmtree(directory / _FOLDER, ignore_errors=True)
