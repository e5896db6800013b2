"""The full strategy: all rows of all states, every time."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from typing import ClassVar

from typing_extensions import override

from millpond.backend.key_layout import KeyLayout
from millpond.backend.snapshot_strategies import SnapshotResult
from millpond.backend.state_view import StateView
from millpond.snapshots.bundle import Bundle
from millpond.snapshots.handles import SnapshotFile
from millpond.snapshots.row_file_format import RowFileWriter
from millpond.snapshots.segments import Packing
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = ["FullStrategy", "write_base"]


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
