"""Incremental snapshots: RocksDB's own files, each uploaded once.

A native checkpoint (hard links) is taken on the caller's thread; files that the last confirmed
snapshot has are referred to, new ones are uploaded in parallel, small ones travel inside the
handle. SST files never change, so a name that the confirmed snapshot holds is the same file:
the store has been at exactly that snapshot, or has come from it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from millpond.backend.failures import named
from millpond.backend.snapshots import SnapshotResult
from millpond.backend.state_view import EmptyView
from millpond.checkpoint.handles import KeyedStateHandle, SnapshotFile
from millpond.checkpoint.snapshot_task import SnapshotTask
from millpond.checkpoint.strategies.base import SnapshotStrategy
from millpond.errors import CorruptSnapshotError
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.untrusted import decoding
from typing_extensions import override

from millpond_rocksdb.factory import NATIVE_FORMAT

if TYPE_CHECKING:
    from millpond_rocksdb.backend import RocksDBKeyedStateBackend

__all__ = ["IncrementalStrategy", "fetch_files"]

_CHUNK = 4 << 20
_MAX_FILE = 1 << 40
_NEEDED = re.compile(r"[0-9]{6,20}\.sst|MANIFEST-[0-9]{6,20}|CURRENT")
_CURRENT = re.compile(rb"MANIFEST-[0-9]{6,20}\n")


def _name(file: SnapshotFile) -> str:
    return file.path.rpartition("/")[2].rpartition("_")[2]


class IncrementalStrategy(SnapshotStrategy):
    """Snapshots that upload new SST files only."""

    name: ClassVar[str] = "incremental"

    def __init__(self, backend: RocksDBKeyedStateBackend) -> None:
        super().__init__(backend)
        self._rocksdb = backend

    @override
    def start(self, restored: KeyedStateHandle | None) -> None:
        """What another strategy wrote is no base."""
        native = restored is not None and restored.format == NATIVE_FORMAT
        super().start(restored if native else None)

    @override
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        backend = self._rocksdb
        backend.flush(version or uuid.uuid4().hex)
        blank = self.blank_handle(checkpoint_id, storage)
        before = self.confirmed
        shared = before.files if before is not None and before.storage == storage else ()
        known = {_name(file): file for file in shared if file.kind == "sst"}
        links = backend.native_checkpoint()
        view = _Links(backend, links)

        def work(task: SnapshotTask) -> SnapshotResult:
            if self.is_empty(blank):
                return SnapshotResult(None)
            files = tuple(self._upload(links, known, blank.checkpoint_id, storage, task))
            fresh = [file for file in files if known.get(_name(file)) is not file]
            made = self.with_files(blank, before, files, native_format=NATIVE_FORMAT)
            return SnapshotResult(made, sum(file.size for file in fresh))

        return self.launch(checkpoint_id, work, view)

    def _upload(
        self,
        links: Path,
        known: dict[str, SnapshotFile],
        checkpoint_id: int,
        storage: CheckpointStorage,
        task: SnapshotTask,
    ) -> Iterator[SnapshotFile]:
        options = self._rocksdb.native_options
        attempt = self.new_path(checkpoint_id, "")

        def one(path: Path) -> SnapshotFile:
            task.check()
            size = path.stat().st_size
            found = known.get(path.name)
            if found is not None and found.size == size:
                return found
            if size <= options.inline_threshold:
                return _inlined(path)
            return _uploaded(path, f"{attempt}_{path.name}", storage)

        names = sorted(path for path in links.iterdir() if _NEEDED.fullmatch(path.name))
        with ThreadPoolExecutor(options.transfer_threads) as pool:
            yield from pool.map(one, names)


class _Links(EmptyView):
    """Keeps the hard links until the upload is over."""

    def __init__(self, backend: RocksDBKeyedStateBackend, links: Path) -> None:
        super().__init__(backend.shape())
        self._links = links

    @override
    def close(self) -> None:
        shutil.rmtree(self._links, ignore_errors=True)


def _kind(path: Path) -> str:
    return "sst" if path.suffix == ".sst" else "meta"


def _inlined(path: Path) -> SnapshotFile:
    data = path.read_bytes()
    return SnapshotFile(
        path=f"inline_{path.name}",
        size=len(data),
        footer=0,
        digest=hashlib.sha256(data).hexdigest(),
        kind=_kind(path),
        inline=base64.b64encode(data).decode(),
    )


def _uploaded(path: Path, target: str, storage: CheckpointStorage) -> SnapshotFile:
    digest = hashlib.sha256()

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as source:
            while data := source.read(_CHUNK):
                digest.update(data)
                yield data

    storage.write(target, chunks())
    return SnapshotFile(
        path=target,
        size=path.stat().st_size,
        footer=0,
        digest=digest.hexdigest(),
        kind=_kind(path),
    )


def fetch_files(handle: KeyedStateHandle, directory: Path, threads: int) -> None:
    """Bring the files of a native snapshot into a directory, each checked.

    Raises:
        CorruptSnapshotError: a file is damaged, missing or foreign.
    """
    with named("rocksdb", directory):
        directory.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda file: _fetch(handle, file, directory), handle.files):
            pass


def _fetch(handle: KeyedStateHandle, file: SnapshotFile, directory: Path) -> None:
    name = _name(file)
    if not _NEEDED.fullmatch(name) or not 0 <= file.size <= _MAX_FILE:
        raise CorruptSnapshotError(file.path, "it is no file of a RocksDB snapshot")
    digest = hashlib.sha256()
    first = b""
    with named("rocksdb", directory), (directory / name).open("wb") as target:
        for data in _chunks(handle, file):
            first = first or data
            digest.update(data)
            target.write(data)
    if digest.hexdigest() != file.digest:
        raise CorruptSnapshotError(file.path, "its digest is wrong")
    if name == "CURRENT" and not _CURRENT.fullmatch(first):
        raise CorruptSnapshotError(file.path, "it names no manifest")


def _chunks(handle: KeyedStateHandle, file: SnapshotFile) -> Iterator[bytes]:
    if file.inline:
        with decoding(file.path, "its bytes in the handle make no sense"):
            data = base64.b64decode(file.inline, validate=True)
        yield data
        return
    assert handle.storage is not None
    for offset in range(0, file.size, _CHUNK):
        yield handle.storage.read(file.path, offset, min(_CHUNK, file.size - offset))
