"""Restores RocksDB's own snapshots: into RocksDB as files, into any other backend as rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import attrs
from millpond.backend.bytestore import whole_lists
from millpond.backend.changes import Change
from millpond.backend.key_layout import KeyLayout
from millpond.backend.key_migration import KeyRewrite
from millpond.backend.restore_target import RestoreTarget
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.restore import adopt_metadata, has_times_of, load_adopted
from millpond.state.descriptors import StateKind

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
        clipped to the range, where their keys are of the backend's type, and their values have
        the times that those of other handles have; then the rows of the other
        handles are added.

        Raises:
            CorruptSnapshotError: a file is damaged, missing or foreign.
            MaxParallelismError, StateMigrationError: the snapshot does not fit the backend.
        """
        backend = self.backend
        common: dict[int, KeyGroupRange] = {}
        rewrites: dict[int, KeyRewrite] = {}
        for at, handle in enumerate(self.handles):
            rewrite = adopt_metadata(backend, handle.max_parallelism, handle.key, handle.states)
            if rewrite is not None:
                rewrites[at] = rewrite
            groups = handle.key_group_range.intersection(backend.key_group_range)
            if groups is not None:
                common[at] = groups
        rest = sorted(common, key=lambda at: len(common[at]), reverse=True)
        if (
            rest
            and isinstance(backend, RocksDBKeyedStateBackend)
            and rest[0] not in rewrites
            and has_times_of(backend, self.handles[rest[0]].states)
        ):
            backend.adopt_files(self.handles[rest[0]], common[rest[0]])
            rest = rest[1:]
        for at in rest:
            self._add_rows(self.handles[at], common[at], rewrites.get(at))

    def _add_rows(
        self, handle: KeyedStateHandle, groups: KeyGroupRange, rewrite: KeyRewrite | None
    ) -> None:
        layout = KeyLayout(handle.max_parallelism)
        low, high = layout.group_prefix(groups.start), layout.end_of_group(groups.end)
        with _opened(handle) as store:
            for state in handle.states:
                if state.name not in store.families():
                    continue
                stored = store.scan(state.name, low, high)
                rows = whole_lists(stored) if state.kind is StateKind.LIST else stored
                while some := list[Change](islice(rows, _ROWS)):
                    load_adopted(self.backend, "checkpoint", state, some, rewrite)


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
