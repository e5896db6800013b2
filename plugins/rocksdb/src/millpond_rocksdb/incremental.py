"""Incremental snapshots of RocksDB's own files, and their restore.

A snapshot uploads each of RocksDB's files only once. First, the thread of the caller creates hard
links to all files. Then another thread refers to the files that the last confirmed snapshot
contains already, uploads the new files in parallel, and puts small files into the snapshot's
handle.

A file with the same name is the same file, for two reasons. SST and blob files never change. And
the store began with exactly the confirmed snapshot, or has taken that snapshot itself.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import ClassVar, Self

import attrs
from millpond.backend import whole_lists
from millpond.errors import ConfigError
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle, SnapshotFile
from millpond.snapshots.restore import adopt_metadata, has_times_of, load_adopted
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.spi import Change, EmptyView, KeyLayout, RestoreTarget, SnapshotResult
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import CheckpointStorage
from typing_extensions import override

from millpond_rocksdb.backend import RocksDBKeyedStateBackend
from millpond_rocksdb.native_files import (
    CHUNK,
    META,
    NATIVE_FORMAT,
    fetch_files,
    files_to_store,
    kind_of,
    name_of,
)
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore


class IncrementalStrategy(SnapshotStrategy):
    """A snapshot strategy that uploads only new SST and blob files."""

    name: ClassVar[str] = "incremental"

    def __init__(self, backend: RocksDBKeyedStateBackend) -> None:
        super().__init__(backend)
        self._rocksdb = backend

    @override
    def builds_on(self, restored: KeyedStateHandle) -> bool:
        return restored.format == NATIVE_FORMAT

    @override
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        if self.inlining.always:
            reason = "RocksDB's own files need a directory: use the strategy changelog or full"
            raise ConfigError(
                "state.snapshot.strategy", f"with checkpoint.storage=pointer {reason}"
            )
        backend = self._rocksdb
        backend.flush(version or uuid.uuid4().hex)
        pending = self.pending_snapshot(checkpoint_id, storage)
        before = self.confirmed
        shared = before.files if before is not None and before.storage == storage else ()
        known = {name_of(file): file for file in shared if file.kind != META}
        links = backend.native_checkpoint()
        view = _Links(backend, links)

        def work(task: SnapshotTask) -> SnapshotResult:
            if pending.is_empty:
                return SnapshotResult(None)
            with _Uploads(storage, self.new_path(checkpoint_id, "")) as uploads:
                files = tuple(self._upload(links, known, uploads, task))
                fresh = [file for file in files if known.get(name_of(file)) is not file]
                with self.bundle(pending, native=True) as bundle:
                    made = self.with_files(
                        pending, before, files, bundle, native_format=NATIVE_FORMAT
                    )
            return SnapshotResult(made, sum(file.size for file in fresh))

        return self.launch(checkpoint_id, work, view)

    def _upload(
        self,
        links: Path,
        known: dict[str, SnapshotFile],
        uploads: _Uploads,
        task: SnapshotTask,
    ) -> Iterator[SnapshotFile]:
        options = self._rocksdb.native_options

        def one(path: Path) -> SnapshotFile:
            task.check()
            size = path.stat().st_size
            found = known.get(path.name)
            if found is not None and found.size == size:
                return found
            if size <= options.inline_threshold:
                return _inlined(path)
            return uploads.add(path)

        found = files_to_store(links)
        with ThreadPoolExecutor(options.transfer_threads) as pool:
            yield from pool.map(one, found)


class _Links(EmptyView):
    """A view without rows, which deletes the hard links when the upload has ended."""

    def __init__(self, backend: RocksDBKeyedStateBackend, links: Path) -> None:
        super().__init__(backend.shape())
        self._links = links

    @override
    def close(self) -> None:
        shutil.rmtree(self._links, ignore_errors=True)


def _inlined(path: Path) -> SnapshotFile:
    data = path.read_bytes()
    return SnapshotFile(
        path=f"inline_{path.name}",
        size=len(data),
        footer=0,
        digest=hashlib.sha256(data).hexdigest(),
        kind=kind_of(path),
        inline=base64.b64encode(data).decode(),
    )


class _Uploads:
    """The files that one snapshot writes. A context manager that deletes them after an error.

    Args:
        storage: the storage of the files.
        attempt: the beginning of the files' paths.
    """

    def __init__(self, storage: CheckpointStorage, attempt: str) -> None:
        self._storage = storage
        self._attempt = attempt
        self._paths: list[str] = []

    def add(self, path: Path) -> SnapshotFile:
        """Write a file to the storage, and return its description. Several threads call this."""
        target = f"{self._attempt}_{path.name}"
        digest = hashlib.sha256()

        def chunks() -> Iterator[bytes]:
            with path.open("rb") as source:
                while data := source.read(CHUNK):
                    digest.update(data)
                    yield data

        self._storage.write(target, chunks())
        self._paths.append(target)
        return SnapshotFile(
            path=target,
            size=path.stat().st_size,
            footer=0,
            digest=digest.hexdigest(),
            kind=kind_of(path),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for path in self._paths:
                self._storage.delete_if_possible(path)


_ROWS = 4096


@attrs.frozen
class NativeRestore:
    """An operation that fills a backend from snapshots of RocksDB's own files."""

    backend: RestoreTarget
    handles: Sequence[KeyedStateHandle]

    def run(self) -> None:
        """Fill the backend with the state of all snapshots.

        If the backend is RocksDB, the files of one snapshot become the store. This is the snapshot
        that shares most key groups with the backend. The rows of other key groups are deleted, and
        then the rows of the other snapshots are added. This requires that the keys have the
        backend's type. It also requires that the values have timestamps exactly if the backend's
        values have timestamps.

        Raises:
            CorruptSnapshotError: a file is damaged, missing, or not part of the snapshot.
            MaxParallelismError, StateMigrationError: the snapshot does not fit the backend.
        """
        backend = self.backend
        parts = []
        for handle in self.handles:
            rewrite = adopt_metadata(backend, handle.max_parallelism, handle.key, handle.states)
            groups = handle.key_group_range.intersection(backend.key_group_range)
            if groups is not None:
                parts.append((handle, groups, rewrite))
        parts.sort(key=lambda part: len(part[1]), reverse=True)
        if parts and isinstance(backend, RocksDBKeyedStateBackend):
            handle, groups, rewrite = parts[0]
            if rewrite is None and has_times_of(backend, handle.states):
                backend.adopt_files(handle, groups)
                del parts[0]
        for handle, groups, rewrite in parts:
            for state, rows in _rows_of(handle, groups):
                load_adopted(backend, "checkpoint", state, rows, rewrite)


def _rows_of(
    handle: KeyedStateHandle, groups: KeyGroupRange
) -> Iterator[tuple[StateMeta, list[Change]]]:
    """Iterate over the portable rows of a snapshot, in pairs of a state and a list of rows."""
    layout = KeyLayout(handle.max_parallelism)
    low, high = layout.group_prefix(groups.start), layout.end_of_group(groups.end)
    with _opened(handle) as store:
        for state in handle.states:
            if state.name in store.families():
                stored = store.scan(state.name, low, high)
                rows = whole_lists(stored) if state.kind is StateKind.LIST else stored
                while some := list[Change](islice(rows, _ROWS)):
                    yield state, some


@contextmanager
def _opened(handle: KeyedStateHandle) -> Iterator[RocksDBStore]:
    options = RocksDBOptions()
    with tempfile.TemporaryDirectory(prefix="millpond-") as directory:
        fetch_files(handle, Path(directory), options.transfer_threads)
        store = RocksDBStore(Path(directory), options, compacts=False)
        try:
            yield store
        finally:
            store.close()
