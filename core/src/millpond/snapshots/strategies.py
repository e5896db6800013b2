"""The full strategy and the changelog strategy."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar

import attrs
from typing_extensions import override

from millpond.backend.keyed import KeyedStateBackend
from millpond.snapshots.bundle import Bundle
from millpond.snapshots.handles import PORTABLE, KeyedStateHandle, SnapshotFile
from millpond.snapshots.row_files import (
    Packing,
    RowFileWriter,
    Segment,
    SegmentBuilder,
    write_segments,
)
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.snapshots.strategy import BlankHandle, SnapshotStrategy, note_taken, taken_after
from millpond.spi.keys import KeyLayout
from millpond.spi.rows import Change, EmptyView, StateView
from millpond.spi.snapshots import SnapshotResult
from millpond.storage.checkpoint_storage import CheckpointStorage


def write_base(
    view: StateView, bundle: Bundle, version: str, task: SnapshotTask, packing: Packing
) -> SnapshotFile:
    """Write all rows of a view, sorted by key group, a segment at a time."""
    layout = KeyLayout(view.max_parallelism)
    writer = RowFileWriter(bundle, layout, packing)
    for group in view.key_group_range:
        for state, rows in view.live_rows(group):
            task.check()
            writer.builder.add(state, rows)
    file = writer.finish("base", version)
    task.check()  # to open the file may have taken long; so far nobody sees it
    return file


class FullStrategy(SnapshotStrategy):
    """Writes everything; needs nothing from snapshots before."""

    name: ClassVar[str] = "full"

    @override
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        backend = self._backend
        backend.flush(version or uuid.uuid4().hex)
        blank = self.blank_handle(checkpoint_id, storage)
        before = self.confirmed
        view = backend.freeze()

        def work(task: SnapshotTask) -> SnapshotResult:
            if blank.is_empty:
                return SnapshotResult(None)
            with self.bundle(blank) as bundle:
                file = write_base(view, bundle, blank.handle.version, task, self.packing)
                made = self.with_files(blank, before, (file,), bundle)
            return SnapshotResult(made, file.size, file.rows)

        return self.launch(checkpoint_id, work, view)


_HISTORY = 8
_FOOTER_BYTES = 512
"""More than a footer says of a segment, and than the rest of it."""


@attrs.frozen
class _Delta:
    """What has changed since the confirmed snapshot, as it was when the snapshot was taken."""

    states: tuple[str, ...]
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        return sum(len(segment.data) for segment in self.segments)

    @property
    def most_bytes(self) -> int:
        """No less than what it takes with what the footer says of it."""
        names = sum(len(json.dumps(name)) for name in self.states)
        return self.size + names + _FOOTER_BYTES * (len(self.segments) + 1)


class ChangelogStrategy(SnapshotStrategy):
    """Snapshots that cost what the changes cost.

    Invariants: ``_log`` holds, in order, every change since the snapshot that ``confirmed`` names
    (since recording began, where there is none), so the whole of it is the next delta.
    ``_covered`` says of each snapshot that may still be confirmed how many of these segments it
    contains; the numbers count from the log's present start. So when a snapshot is confirmed, as
    many are cut off the start, and the numbers of later snapshots shrink by as many.
    """

    name: ClassVar[str] = "changelog"

    def __init__(self, backend: KeyedStateBackend) -> None:
        super().__init__(backend)
        self._config = backend.parameters.config.state.snapshot
        self._covered: dict[int, int] = {}
        self._listening = False
        self._recording = False
        self._forget()

    def _forget(self) -> None:
        self._log: list[Segment] = []
        self._layout = self._backend.current.layout
        self._builder = SegmentBuilder(self._layout, self._log.append, self.packing)
        self._covered.clear()

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
        """From the first snapshot on: without listeners the heap's flushes have nothing to do."""
        if not self._listening:
            self._backend.add_change_listener(self._record)
            self._listening = True

    def _record(self, batch: Mapping[str, Sequence[Change]]) -> None:
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
        blank = self.blank_handle(checkpoint_id, storage)
        covered = len(self._log)
        before = self.confirmed
        if before is None or before.storage != storage:
            task = self._base_only(before, blank)
        elif delta.segments and self._outgrown(before, delta, blank):
            task = self._delta_and_base(before, delta, blank)
        else:
            task = self._delta_only(before, delta, blank)
        note_taken(checkpoint_id, covered, self._covered)
        return task

    def _base_only(
        self, before: KeyedStateHandle | None, blank: BlankHandle
    ) -> Future[SnapshotResult]:
        view = self._backend.freeze()

        def work(task: SnapshotTask) -> SnapshotResult:
            if blank.is_empty:
                return SnapshotResult(None)
            with self.bundle(blank) as bundle:
                base = write_base(view, bundle, blank.handle.version, task, self.packing)
                made = self.with_files(blank, before, (base,), bundle)
            return SnapshotResult(made, base.size, base.rows)

        return self.launch(blank.handle.checkpoint_id, work, view)

    def _delta_only(
        self, before: KeyedStateHandle, delta: _Delta, blank: BlankHandle
    ) -> Future[SnapshotResult]:
        def work(task: SnapshotTask) -> SnapshotResult:
            with self.bundle(blank) as bundle:
                if not delta.segments:
                    made = self.with_files(blank, before, before.files, bundle, before.history)
                    return SnapshotResult(made)
                file = self._written(bundle, delta, blank)
                task.check()
                files = (*before.files, file)
                made = self.with_files(blank, before, files, bundle, before.history)
            return SnapshotResult(made, file.size, file.rows)

        return self.launch(blank.handle.checkpoint_id, work, EmptyView(self._backend.shape()))

    def _written(self, bundle: Bundle, delta: _Delta, blank: BlankHandle) -> SnapshotFile:
        return write_segments(
            bundle, self._layout, delta.states, delta.segments, blank.handle.version
        )

    def _delta_and_base(
        self, before: KeyedStateHandle, delta: _Delta, blank: BlankHandle
    ) -> Future[SnapshotResult]:
        """A new base, and the delta too: a copy that is only a little behind catches up by it.

        Not where the handle carries the base: to read that costs no more than deltas do.
        """
        view = self._backend.freeze()

        def work(task: SnapshotTask) -> SnapshotResult:
            written, history = [], tuple[SnapshotFile, ...]()
            with self.bundle(blank) as bundle:
                written.append(
                    base := write_base(view, bundle, blank.handle.version, task, self.packing)
                )
                if not bundle.is_held:
                    written.append(file := self._written(bundle, delta, blank))
                    history = (*before.files[1:], file)[-_HISTORY:]
                made = self.with_files(blank, before, (base,), bundle, history)
            size = sum(file.size for file in written)
            return SnapshotResult(made, size, sum(file.rows for file in written))

        return self.launch(blank.handle.checkpoint_id, work, view)

    def _outgrown(self, before: KeyedStateHandle, delta: _Delta, blank: BlankHandle) -> bool:
        """Whether a new base is due, by the chain's length or by what the handle carries."""
        base, *deltas = before.files
        carried = sum(file.size for file in before.files if file.inline) + delta.most_bytes
        carried += blank.operator_state_bytes
        if base.inline and carried > self.inlining.limit:
            return True
        if self.inlining.always and before.needed_paths:
            return True
        size = sum(file.size for file in deltas) + delta.size
        return size > base.size * self._config.base_ratio or len(deltas) >= self._config.max_deltas

    @override
    def _count_from(self, checkpoint_id: int) -> None:
        covered = self._covered.get(checkpoint_id)
        if covered is None:
            return
        del self._log[:covered]
        later = taken_after(checkpoint_id, self._covered)
        self._covered = {n: count - covered for n, count in later.items()}

    @override
    def notify_aborted(self, checkpoint_id: int) -> None:
        super().notify_aborted(checkpoint_id)
        self._covered.pop(checkpoint_id, None)
