"""The savepoint strategy, and the restore from a savepoint."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import attrs
from typing_extensions import override

from millpond.arguments import CHECKPOINT_IDS, check_type, check_within
from millpond.savepoints.operator_tables import save_operator_states
from millpond.savepoints.savepoint_file import (
    Reservation,
    Savepoint,
    delete_savepoint,
    read_savepoint,
    reserved,
    write_savepoint,
)
from millpond.savepoints.tables import read_state, save_operator
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.restore import adopt_metadata, load_adopted
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.spi.backend import RestoreTarget
from millpond.spi.snapshots import SnapshotResult
from millpond.storage.checkpoint_storage import CheckpointStorage


class SavepointStrategy(SnapshotStrategy):
    """Writes Parquet tables that every backend restores."""

    name: ClassVar[str] = "savepoint"

    @property
    def _uid(self) -> str:
        return self._backend.parameters.operator.uid or "operator"

    @override
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        return self.save(
            checkpoint_id, storage, f"savepoint-{checkpoint_id}-{uuid.uuid4().hex[:12]}"
        )

    def save(
        self, checkpoint_id: int, storage: CheckpointStorage, folder: str
    ) -> Future[SnapshotResult]:
        """Write a savepoint into a folder of a storage; '' is its root.

        Raises:
            DirectoryNotEmptyError: the folder holds files.
        """
        check_within("checkpoint_id", checkpoint_id, *CHECKPOINT_IDS)
        check_type("storage", storage, CheckpointStorage)
        limits = self._backend.parameters.config.restore
        handle = SavepointHandle(checkpoint_id, folder, storage, limits=limits)
        reservation = reserved(handle, [self._uid])
        try:
            return self._launch_reserved(reservation)
        except BaseException:
            reservation.abandon()
            raise

    def _launch_reserved(self, reservation: Reservation) -> Future[SnapshotResult]:
        """Freeze the backend, and write its rows in the background."""
        backend, handle, uid = self._backend, reservation.handle, self._uid
        backend.flush(uuid.uuid4().hex)
        frozen = backend.operator_state.freeze() if backend.operator_state is not None else []
        # Few callers confirm savepoints, so earlier ones are forgotten once they are written.
        self._running = {n: each for n, each in self._running.items() if not each.task.done()}
        view = backend.freeze()

        def work(task: SnapshotTask) -> SnapshotResult:
            with reservation:
                if not view.metas and not frozen:
                    return SnapshotResult(None)
                operator_states = save_operator_states(handle, uid, [frozen])
                keyed = save_operator(view, handle, uid, task)
                operator = attrs.evolve(keyed, operator_states=operator_states)
                write_savepoint(handle, Savepoint(handle.checkpoint_id, (operator,)))
                sizes = (file.size for file in operator.files)
                rows = (file.rows for file in operator.files)
                return SnapshotResult(handle, sum(sizes), sum(rows))

        return self.launch(handle.checkpoint_id, work, view)

    @override
    def notify_complete(self, checkpoint_id: int) -> None:
        self._running.pop(checkpoint_id, None)  # nothing builds on a savepoint

    @override
    def _delete_aborted(self, handle: Any, needed: frozenset[str]) -> None:
        if isinstance(handle, SavepointHandle):
            delete_savepoint(handle, [self._uid])
            handle.storage.delete_empty([handle.folder] if handle.folder else [])


@attrs.frozen
class SavepointRestore:
    """Loads the rows of the backend's key groups from savepoints."""

    backend: RestoreTarget
    handles: Sequence[SavepointHandle]

    def run(self) -> None:
        """Load all rows.

        Raises:
            CorruptSnapshotError: a file is damaged, missing, edited but not sealed, or foreign.
            RestoreError: the savepoint does not hold this operator.
            MaxParallelismError, StateMigrationError: it does not fit the backend.
        """
        backend = self.backend
        for given in self.handles:
            handle = attrs.evolve(given, limits=backend.parameters.config.restore)
            operator = read_savepoint(handle).operator(backend.parameters.operator)
            rewrite = adopt_metadata(
                backend, operator.max_parallelism, operator.key, operator.metas
            )
            groups = operator.key_group_range.intersection(backend.key_group_range)
            if groups is None:
                continue
            for state in operator.states:
                for rows in read_state(handle, operator, state, groups):
                    load_adopted(backend, "savepoint", state.meta, rows, rewrite)
