"""Two snapshot strategies: ``full`` writes the whole state, ``changelog`` mostly the changes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar

import attrs
from typing_extensions import override

from millpond.backend.keyed_backend import KeyedStateBackend
from millpond.snapshots.bundle import Bundle
from millpond.snapshots.handles import PORTABLE, KeyedStateHandle, SnapshotFile
from millpond.snapshots.row_files import (
    Packing,
    RowFileWriter,
    Segment,
    SegmentBuilder,
)
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.snapshots.strategy import PendingSnapshot, SnapshotStrategy
from millpond.spi.keys import KeyLayout
from millpond.spi.portable_rows import Change, EmptyView, StateView
from millpond.spi.snapshots import SnapshotResult
from millpond.storage.checkpoint_storage import CheckpointStorage


def write_base(
    view: StateView, bundle: Bundle, version: str, task: SnapshotTask, packing: Packing
) -> SnapshotFile:
    """Write all rows of `view` to `bundle`, sorted by key group; return the part's description.

    Such a part with the whole state is called a base.
    """
    writer = RowFileWriter(bundle, KeyLayout(view.max_parallelism), packing)
    for group in view.key_group_range:
        for state, rows in view.live_rows(group):
            task.check()
            writer.builder.add(state, rows)
    file = writer.finish("base", version)
    task.check()  # opening the file may have taken long, and no handle names it yet
    return file


_HISTORY = 8
_FOOTER_BYTES = 512
"""An upper bound, in bytes, of a footer without segments, and of its growth by each segment."""


@attrs.frozen
class _Delta:
    """The changes between the confirmed snapshot and a new one."""

    states: tuple[str, ...]
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        return sum(len(segment.data) for segment in self.segments)


class ChangelogStrategy(SnapshotStrategy):
    """The strategy that writes only the changes since the confirmed snapshot, as a delta.

    If the deltas become many or large, it writes a new base, i.e. the whole state.

    Invariants: ``_log`` is a list of segments with every change since the confirmed snapshot, in
    order. If no snapshot is confirmed, it has every change since recording began. The whole list is
    the next delta. Each running snapshot has a number ``covered``: the snapshot contains as many
    segments from the start of the list. When a snapshot is confirmed, its segments
    are dropped, and their number is subtracted from the numbers of later snapshots.
    """

    name: ClassVar[str] = "changelog"

    def __init__(self, backend: KeyedStateBackend) -> None:
        super().__init__(backend)
        self._config = backend.parameters.config.state.snapshot
        self._listening = False
        self._recording = False
        self._forget()

    def _forget(self) -> None:
        """Drop all recorded changes, and begin a new log."""
        self._log: list[Segment] = []
        self._layout = self._backend.current.layout
        self._builder = SegmentBuilder(self._layout, self._log.append, self.packing)

    @override
    def builds_on(self, restored: KeyedStateHandle) -> bool:
        return restored.format == PORTABLE

    @override
    def start(self, restored: KeyedStateHandle | None) -> None:
        super().start(restored)
        self._recording = self.confirmed is not None
        self._forget()
        if self._recording:
            self._listen()

    def _listen(self) -> None:
        """Let the backend call `_record` with the changes of each flush.

        This begins only with the first snapshot, because without listeners the heap backend need
        not collect changes.
        """
        if not self._listening:
            self._backend.add_change_listener(self._record)
            self._listening = True

    def _record(self, batch: Mapping[str, Sequence[Change]]) -> None:
        """Record the changes of a flush as segments; called by the backend."""
        if self._recording:
            for state, changes in batch.items():
                self._builder.add(state, changes)
            self._builder.cut()

    @override
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        backend = self._backend
        self._listen()
        backend.flush(version or uuid.uuid4().hex)
        self._recording = True
        delta = _Delta(tuple(self._builder.states), tuple(self._log))
        pending = self.pending_snapshot(checkpoint_id, storage)
        covered, before = len(self._log), self.confirmed
        if before is not None and before.storage != storage:
            before = None
        needs_base = before is None or self._needs_base(before, delta, pending)
        view = backend.freeze() if needs_base else EmptyView(backend.shape())

        def work(task: SnapshotTask) -> SnapshotResult:
            if before is None and pending.is_empty:
                return SnapshotResult(None)
            written, version = list[SnapshotFile](), pending.handle.version
            files, history = (before.files, before.history) if before is not None else ((), ())
            with self.bundle(pending) as bundle:
                if needs_base:
                    written.append(write_base(view, bundle, version, task, self.packing))
                # A base in a file is written with the last delta, so that a backend that is a
                # little behind can catch up without the base. A base in the handle is small enough.
                if before is not None and delta.segments and not (needs_base and bundle.is_held):
                    writer = RowFileWriter(bundle, self._layout)
                    for segment in delta.segments:
                        writer.place(segment)
                    written.append(writer.finish("delta", version, delta.states))
                    task.check()
                if needs_base:
                    base, *deltas = written
                    history = (*files[1:], *deltas)[-_HISTORY:] if deltas else ()
                    files = (base,)
                else:
                    files = (*files, *written)
                made = self.with_files(pending, before, files, bundle, history)
            size, rows = sum(file.size for file in written), sum(file.rows for file in written)
            return SnapshotResult(made, size, rows)

        return self.launch(checkpoint_id, work, view, covered)

    def _needs_base(
        self, before: KeyedStateHandle, delta: _Delta, pending: PendingSnapshot
    ) -> bool:
        """Return whether the next snapshot needs a new base, i.e. the whole state.

        This is the case if the deltas are too many or too large, or if the bytes in the handle
        would exceed their limit.

        Args:
            before: the confirmed snapshot.
            delta: the changes since the confirmed snapshot.
            pending: the next snapshot.
        """
        if not delta.segments:
            return False
        base, *deltas = before.files
        # An upper bound of the bytes that the handle would contain.
        carried = sum(file.size for file in before.files if file.inline) + delta.size
        carried += sum(len(json.dumps(name)) for name in delta.states)
        carried += _FOOTER_BYTES * (len(delta.segments) + 1)
        carried += sum(state.size for state in pending.operator_state)
        if base.inline and carried > self.inlining.limit:
            return True
        if self.inlining.always and before.needed_paths:
            return True
        size = sum(file.size for file in deltas) + delta.size
        return size > base.size * self._config.base_ratio or len(deltas) >= self._config.max_deltas

    @override
    def _drop_segments(self, covered: int) -> None:
        del self._log[:covered]
        for running in self._running.values():
            running.covered -= covered


class FullStrategy(ChangelogStrategy):
    """The strategy that writes the whole state with every snapshot, and so records no changes."""

    name: ClassVar[str] = "full"

    @override
    def _listen(self) -> None:
        """Do nothing, because a snapshot without earlier snapshots needs no changes."""

    @override
    def _needs_base(
        self, before: KeyedStateHandle, delta: _Delta, pending: PendingSnapshot
    ) -> bool:
        return True
