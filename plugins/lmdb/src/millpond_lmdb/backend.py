"""The keyed backend over an ``LmdbStore``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from millpond.backend import ByteStoreBackend
from millpond.spi import ByteStore, KeyedBackendParameters
from typing_extensions import override

from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore

_FOLDER = "lmdb"


class LmdbKeyedStateBackend(ByteStoreBackend):
    """Keyed state in LMDB."""

    name: ClassVar[str] = "lmdb"

    def __init__(self, parameters: KeyedBackendParameters, options: LmdbOptions) -> None:
        self._options = options
        super().__init__(parameters)

    @override
    def open_store(self, directory: Path) -> ByteStore:
        return LmdbStore(directory / _FOLDER, self._options)

    @override
    def destroy_store(self, directory: Path) -> None:
        shutil.rmtree(directory / _FOLDER, ignore_errors=True)
