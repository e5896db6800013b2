"""The full strategy: all rows of all states, every time."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, ClassVar

from millpond.checkpoint.files import SegmentBuilder, write_file
from millpond.checkpoint.handles import KeyedStateHandle, SnapshotFile
from millpond.checkpoint.storage import CheckpointStorage
from millpond.checkpoint.strategy import SnapshotResult, SnapshotStrategy
from millpond.keygroups import key_group_prefix_bytes

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend

__all__ = ["FullStrategy", "make_handle", "snapshot_path", "write_base"]


def snapshot_path(backend: KeyedStateBackend, checkpoint_id: int, kind: str) -> str:
    """A path that no other attempt uses."""
    place = backend.parameters.place.strip("/") or "state"
    groups = backend.key_group_range
    name = f"{checkpoint_id}-{uuid.uuid4().hex}.{kind}.arrow"
    return f"{place}/kg-{groups.start}-{groups.end}/{name}"


def write_base(
    backend: KeyedStateBackend, checkpoint_id: int, storage: CheckpointStorage, version: str
) -> SnapshotFile:
    """Write all rows of a flushed backend, sorted by key group."""
    builder = SegmentBuilder(key_group_prefix_bytes(backend.max_parallelism))
    for group in backend.key_group_range:
        for state, rows in backend.rows(group):
            builder.add(state, rows)
    builder.cut()
    path = snapshot_path(backend, checkpoint_id, "base")
    return write_file(storage, path, builder.states, builder.segments, "base", version)


def make_handle(
    backend: KeyedStateBackend,
    checkpoint_id: int,
    storage: CheckpointStorage,
    version: str,
    files: tuple[SnapshotFile, ...],
    history: tuple[SnapshotFile, ...] = (),
) -> KeyedStateHandle:
    """The handle of a backend's snapshot."""
    return KeyedStateHandle(
        checkpoint_id=checkpoint_id,
        version=version,
        key_group_range=backend.key_group_range,
        max_parallelism=backend.max_parallelism,
        key=backend.key_codec.snapshot(),
        states=tuple(backend.state_metas()),
        files=files,
        history=history,
        storage=storage,
    )


class FullStrategy(SnapshotStrategy):
    """Writes everything; needs nothing from snapshots before."""

    name: ClassVar[str] = "full"

    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """See the base class."""
        backend = self._backend
        backend.flush(version or uuid.uuid4().hex)
        future: Future[SnapshotResult] = Future()
        if not backend.state_metas():
            future.set_result(SnapshotResult(None))
            return future
        name = backend.version or ""
        file = write_base(backend, checkpoint_id, storage, name)
        handle = make_handle(backend, checkpoint_id, storage, name, (file,))
        future.set_result(SnapshotResult(handle, file.size, file.rows))
        return future
