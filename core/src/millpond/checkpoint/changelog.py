"""The changelog strategy: a base and deltas of what changed since.

A delta is what the flushes since the last confirmed snapshot have reported, so a snapshot
costs what the changes cost. The base is written anew when the deltas outgrow it or become
too many to read at a restore.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, ClassVar

import attrs

from millpond.backend.keyed import Change
from millpond.checkpoint.files import SegmentBuilder, write_file
from millpond.checkpoint.full import make_handle, snapshot_path, write_base
from millpond.checkpoint.handles import KeyedStateHandle, SnapshotFile
from millpond.checkpoint.storage import CheckpointStorage
from millpond.checkpoint.strategy import SnapshotResult, SnapshotStrategy
from millpond.keygroups import key_group_prefix_bytes

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend

__all__ = ["ChangelogStrategy"]

_HISTORY = 8
_Files = tuple[SnapshotFile, ...]


@attrs.frozen
class _Taken:
    """An unconfirmed snapshot, and how many recorded segments it covers."""

    checkpoint_id: int
    handle: KeyedStateHandle
    segments: int


class ChangelogStrategy(SnapshotStrategy):
    """Snapshots that cost what the changes cost."""

    name: ClassVar[str] = "changelog"

    def __init__(self, backend: KeyedStateBackend) -> None:
        super().__init__(backend)
        self._config = backend.parameters.config.state.snapshot
        self._confirmed: KeyedStateHandle | None = None
        self._taken: list[_Taken] = []
        self._log = self._new_log()
        self._listening = False
        self._recording = False

    def _new_log(self) -> SegmentBuilder:
        return SegmentBuilder(key_group_prefix_bytes(self._backend.max_parallelism))

    def start(self, restored: KeyedStateHandle | None) -> None:
        """See the base class."""
        self._confirmed = restored
        self._recording = restored is not None
        self._taken.clear()
        self._log = self._new_log()
        self._listen()

    def _listen(self) -> None:
        if not self._listening:
            self._backend.add_change_listener(self._record)
            self._listening = True

    def _record(self, batch: Mapping[str, Sequence[Change]]) -> None:
        if self._recording:
            for state, changes in batch.items():
                self._log.add(state, changes)
            self._log.cut()

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """See the base class."""
        backend = self._backend
        self._listen()
        backend.flush(version or uuid.uuid4().hex)
        self._recording = True
        future: Future[SnapshotResult] = Future()
        if not backend.state_metas():
            future.set_result(SnapshotResult(None))
            return future
        name = backend.version or ""
        written, files, history = self._write(checkpoint_id, storage, name)
        handle = make_handle(backend, checkpoint_id, storage, name, files, history)
        self._taken.append(_Taken(checkpoint_id, handle, len(self._log.segments)))
        size = sum(file.size for file in written)
        rows = sum(file.rows for file in written)
        future.set_result(SnapshotResult(handle, size, rows))
        return future

    def _write(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str
    ) -> tuple[_Files, _Files, _Files]:
        """The files written now, the files of the new snapshot, and its history."""
        before = self._confirmed
        if before is None or before.storage != storage:
            base = write_base(self._backend, checkpoint_id, storage, version)
            return (base,), (base,), ()
        if not self._log.segments:
            return (), before.files, before.history
        path = snapshot_path(self._backend, checkpoint_id, "delta")
        segments = self._log.segments
        delta = write_file(storage, path, self._log.states, segments, "delta", version)
        files = (*before.files, delta)
        if not self._outgrown(files):
            return (delta,), files, before.history
        base = write_base(self._backend, checkpoint_id, storage, version)
        return (delta, base), (base,), files[1:][-_HISTORY:]

    def _outgrown(self, files: _Files) -> bool:
        base, *deltas = files
        too_large = sum(file.size for file in deltas) > base.size * self._config.base_ratio
        return too_large or len(deltas) > self._config.max_deltas

    def notify_complete(self, checkpoint_id: int) -> None:
        """See the base class."""
        done = [taken for taken in self._taken if taken.checkpoint_id <= checkpoint_id]
        if not done or done[-1].checkpoint_id != checkpoint_id:
            return
        covered = done[-1].segments
        self._confirmed = done[-1].handle
        del self._log.segments[:covered]
        self._taken = [
            attrs.evolve(taken, segments=taken.segments - covered)
            for taken in self._taken[len(done) :]
        ]
