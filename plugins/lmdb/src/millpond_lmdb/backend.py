"""LMDB's keyed backend: the byte-store base over LmdbStore."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from millpond.backend import ByteStoreBackend
from millpond.config import structure_options
from millpond.spi import ByteStore, KeyedBackendParameters
from typing_extensions import override

from millpond_lmdb.options import BACKEND, LmdbOptions
from millpond_lmdb.store import LmdbStore

_FOLDER = "lmdb"


class LmdbKeyedStateBackend(ByteStoreBackend):
    """Keyed state in LMDB."""

    name: ClassVar[str] = BACKEND

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self._options = structure_options(
            LmdbOptions, parameters.options, "configuration", f"backend.{BACKEND}"
        )
        super().__init__(parameters)

    @override
    def open_store(self, directory: Path) -> ByteStore:
        return LmdbStore(directory / _FOLDER, self._options)

    @override
    def destroy_store(self, directory: Path) -> None:
        shutil.rmtree(directory / _FOLDER, ignore_errors=True)
