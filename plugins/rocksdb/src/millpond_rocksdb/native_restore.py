"""Restores RocksDB's own snapshots: into RocksDB as files, into any other backend as rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import attrs
from millpond.backend import whole_lists
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.restore import adopt_metadata, has_times_of, load_adopted
from millpond.spi import Change, KeyLayout, RestoreTarget
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta

from millpond_rocksdb.backend import RocksDBKeyedStateBackend
from millpond_rocksdb.native_files import fetch_files
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

_ROWS = 4096


@attrs.frozen
class NativeRestore:
    """Reads the key groups of a backend from RocksDB's own snapshots."""

    backend: RestoreTarget
    handles: Sequence[KeyedStateHandle]

    def run(self) -> None:
        """Load everything.

        On RocksDB, the files of the handle that shares the most key groups become the store,
        clipped to the range, if their keys have the backend's type and their values have
        timestamps as in the other handles. Then the rows of the other handles are added.

        Raises:
            CorruptSnapshotError: a file is damaged, missing or foreign.
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
    """Iterate over the states and portable rows of a handle, by slices."""
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
