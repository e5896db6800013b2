"""The keyed backend over a ``RocksDBStore``."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import ClassVar

from millpond.backend import ByteStoreBackend
from millpond.errors import CorruptSnapshotError, StoreDamagedError
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle
from millpond.spi import ByteStore, KeyedBackendParameters
from typing_extensions import override

from millpond_rocksdb.native_files import fetch_files
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

_FOLDER = "rocksdb"
_LINKS = "links-"


class RocksDBKeyedStateBackend(ByteStoreBackend):
    """Keyed state in RocksDB.

    Attributes:
        native_options: the options with which the backend was opened.
    """

    name: ClassVar[str] = "rocksdb"

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        budget = parameters.memory_budget
        shared = {} if budget is None else {"memory": str(budget)}
        self.native_options = RocksDBOptions.from_mapping({**shared, **parameters.options})
        super().__init__(parameters)

    def native_checkpoint(self) -> Path:
        """Return a new directory with hard links to the files of the flushed store.

        The caller must delete the directory.
        """
        assert self.parameters.directory is not None
        links = self.parameters.directory / f"{_LINKS}{uuid.uuid4().hex}"
        self._rocksdb.checkpoint(links)
        return links

    def adopt_files(self, handle: KeyedStateHandle, groups: KeyGroupRange) -> None:
        """Use the files of a snapshot as the store, and delete the rows of other key groups.

        Args:
            handle: the snapshot, which contains RocksDB's own files.
            groups: the key groups to keep.
        """
        directory = self.parameters.directory
        assert directory is not None
        self.store.close()
        self.destroy_store(directory)
        fetch_files(handle, directory / _FOLDER, self.native_options.transfer_threads)
        self.restored_bytes.add_files("checkpoint", handle.size)
        try:
            self.buffer.store = self.open_store(directory)
        except StoreDamagedError as error:
            where = f"checkpoint {handle.checkpoint_id}"
            raise CorruptSnapshotError(where, f"RocksDB cannot open its files: {error}") from error
        layout = self.current.layout
        first, end = layout.group_prefix(groups.start), layout.end_of_group(groups.end)
        for meta in handle.states:
            if meta.name in self.store.families():
                self._clip(meta.name, first, end, layout.group_bytes)

    def _clip(self, family: str, first: bytes, end: bytes | None, size: int) -> None:
        """Delete the rows before `first`, and the rows from `end` on.

        `size` is the number of bytes of the key group in a physical key.
        """
        self._rocksdb.delete_range(family, b"", first)
        if end is not None:
            self._rocksdb.delete_range(family, end, b"\xff" * (size + 1))

    @property
    def _rocksdb(self) -> RocksDBStore:
        assert isinstance(self.store, RocksDBStore)
        return self.store

    @override
    def open_store(self, directory: Path) -> ByteStore:
        return RocksDBStore(directory / _FOLDER, self.native_options)

    @override
    def destroy_store(self, directory: Path) -> None:
        """Delete the store from `directory`.

        Also delete hard links that killed processes have left there, because they occupy disk
        space.
        """
        for path in (directory / _FOLDER, *directory.glob(f"{_LINKS}*")):
            shutil.rmtree(path, ignore_errors=True)

    @override
    def _close(self) -> None:
        """Close the store.

        If the next task can reopen the files, wait until compactions have ended.
        """
        try:
            if self.leaves_copy and self.version is not None and not self.store.damaged:
                self._rocksdb.await_compactions()
        finally:
            super()._close()
