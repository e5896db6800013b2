"""The contract of a snapshot strategy, and what all of them share."""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

import attrs

from millpond.backend.capabilities import Capability
from millpond.backend.operatorstate import FrozenState
from millpond.backend.view import StateView
from millpond.checkpoint.handles import (
    PORTABLE,
    KeyedStateHandle,
    OperatorStateHandle,
    RetiredFile,
    SnapshotFile,
)
from millpond.checkpoint.operatorstate import holds, write_partitions
from millpond.checkpoint.sealed import write_sealed
from millpond.checkpoint.storage import CheckpointStorage
from millpond.checkpoint.streams import CheckpointOutputStream
from millpond.checkpoint.tasks import SnapshotResult, SnapshotTask, run_snapshot

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend

__all__ = ["SnapshotResult", "SnapshotStrategy"]

_LOG = logging.getLogger("millpond.checkpoint")


class SnapshotStrategy(ABC):
    """One way to take snapshots of one opened backend.

    A snapshot has a short part on the caller's thread, which freezes the state, and a part
    that :meth:`launch` runs by itself. Several may run at once. ``confirmed`` is the last
    snapshot that is known to count; only on that one may another build.
    """

    name: ClassVar[str]

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        self._running: dict[int, SnapshotTask] = {}
        self._unfinished: set[SnapshotTask] = set()
        self._operator_state: dict[int, list[FrozenState]] = {}
        self.confirmed: KeyedStateHandle | None = None

    # ---------------------------------------------------------------- what a subclass adds

    @abstractmethod
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """Take a snapshot; see ``KeyedStateBackend.snapshot``."""

    # ---------------------------------------------------------------- life cycle

    def start(self, restored: KeyedStateHandle | None) -> None:
        """The backend begins work, at exactly a confirmed snapshot, or empty or rescaled."""
        self.confirmed = restored
        self._running.clear()
        self._operator_state.clear()
        self._drop_outdated()

    def notify_complete(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed: later ones may build on it, and older ones are subsumed."""
        task = self._running.get(checkpoint_id)
        if task is None:
            return
        result = task.result()
        self._running = {n: t for n, t in self._running.items() if n > checkpoint_id}
        if result.handle is not None:
            self.confirmed = result.handle
            self._drop_outdated()

    def notify_aborted(self, checkpoint_id: int) -> None:
        """A snapshot will never count: cancel it, and delete what it has written by itself."""
        task = self._running.pop(checkpoint_id, None)
        self._operator_state.pop(checkpoint_id, None)
        if task is None:
            return
        if task.done():
            self._delete_aborted(task)
        else:
            # It may be too late for it to notice, and then there are files to delete.
            task.cancel()
            task.add_done_callback(self._delete_aborted)

    def _delete_aborted(self, task: Future[SnapshotResult]) -> None:
        if task.cancelled() or task.exception() is not None:
            return
        handle = task.result().handle
        needed = self.confirmed.all_paths if self.confirmed else frozenset()
        if isinstance(handle, KeyedStateHandle) and handle.storage is not None:
            for path in sorted((handle.paths | {handle.metadata}) - needed):
                handle.storage.delete(path)

    def notify_subsumed(self, checkpoint_id: int) -> None:
        """A confirmed snapshot and those before it are not needed: delete what only they use."""
        self._delete_retired(checkpoint_id + 1)

    def close(self) -> None:
        """Cancel what runs, aborted or not, and wait until it has released what it read from."""
        unfinished = list(self._unfinished)
        for task in unfinished:
            task.cancel()
        wait(unfinished)
        self._running.clear()

    # ---------------------------------------------------------------- for subclasses

    def launch(
        self, checkpoint_id: int, work: Callable[[SnapshotTask], SnapshotResult], view: StateView
    ) -> SnapshotTask:
        """Run the second part of a snapshot over a frozen view, which is closed at its end."""
        background = Capability.ASYNC_SNAPSHOT in self._backend.capabilities
        task = run_snapshot(work, view.close, background=background)
        self._running[checkpoint_id] = task
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    def new_path(self, checkpoint_id: int, suffix: str) -> str:
        """A path that no other attempt uses."""
        return f"{self._folder()}/{checkpoint_id}-{uuid.uuid4().hex}.{suffix}"

    def _folder(self) -> str:
        """Where all snapshots of this place and these key groups lie."""
        place = self._backend.parameters.place.strip("/") or "state"
        groups = self._backend.key_group_range
        return f"{place}/kg-{groups.start}-{groups.end}"

    def blank_handle(self, checkpoint_id: int, storage: CheckpointStorage) -> KeyedStateHandle:
        """The handle of the flushed backend, with no files yet; freezes the operator state."""
        backend = self._backend
        frozen = backend.operator_state.freeze() if backend.operator_state is not None else []
        if frozen:
            self._operator_state[checkpoint_id] = frozen
        return KeyedStateHandle(
            checkpoint_id=checkpoint_id,
            version=backend.version or "",
            key_group_range=backend.key_group_range,
            max_parallelism=backend.max_parallelism,
            key=backend.key_codec.snapshot(),
            states=tuple(backend.state_metas()),
            files=(),
            storage=storage,
        )

    def is_empty(self, blank: KeyedStateHandle) -> bool:
        """Whether the subtask has no state of any kind, so that there is nothing to write."""
        return not blank.states and blank.checkpoint_id not in self._operator_state

    def with_files(
        self,
        blank: KeyedStateHandle,
        files: tuple[SnapshotFile, ...],
        history: tuple[SnapshotFile, ...] = (),
        native_format: str = PORTABLE,
    ) -> KeyedStateHandle:
        """The complete handle; what the confirmed snapshot has beyond its files is retired."""
        before = self.confirmed
        operator_state = self._written_operator_state(blank)
        made = attrs.evolve(
            blank,
            files=files,
            history=history,
            format=native_format,
            operator_state=operator_state,
        )
        unchanged = (
            before is not None
            and before.files == files
            and before.storage == blank.storage
            and before.operator_state == operator_state
        )
        if before is not None and unchanged:
            return attrs.evolve(made, metadata=before.metadata, retired=before.retired)
        path = self.new_path(blank.checkpoint_id, "handle.json")
        complete = attrs.evolve(self._with_retired(made, before), metadata=path)
        assert blank.storage is not None
        write_sealed(blank.storage, path, complete.to_json())
        return complete

    def _written_operator_state(self, blank: KeyedStateHandle) -> tuple[OperatorStateHandle, ...]:
        """The frozen operator state in the storage; that of the confirmed snapshot if unchanged."""
        frozen = self._operator_state.pop(blank.checkpoint_id, [])
        before, storage = self.confirmed, blank.storage
        if not frozen or storage is None:
            return ()
        if before is not None and before.storage == storage and len(before.operator_state) == 1:
            (known,) = before.operator_state
            if holds(known, frozen):
                return before.operator_state
        path = self.new_path(blank.checkpoint_id, "operator.bin")
        with closing(CheckpointOutputStream(storage, path)) as stream:
            number = blank.checkpoint_id
            return (write_partitions(stream, number, storage, frozen, SnapshotTask()),)

    def _with_retired(
        self, made: KeyedStateHandle, before: KeyedStateHandle | None
    ) -> KeyedStateHandle:
        if before is None or before.storage != made.storage:
            return made
        known = {retired.path for retired in before.retired}
        used = before.paths | {before.metadata}
        dropped = sorted(path for path in used - made.paths - known if path)
        retired = [RetiredFile(path, made.checkpoint_id) for path in dropped]
        return attrs.evolve(made, retired=(*before.retired, *retired))

    def _drop_outdated(self) -> None:
        """Delete what no snapshot within the retained number needs any more."""
        if self.confirmed is not None:
            retained = self._backend.parameters.config.checkpoint.retained
            self._delete_retired(self.confirmed.checkpoint_id - retained + 1)

    def _delete_retired(self, limit: int) -> None:
        """Delete files that the snapshot with this number, and all after it, do without.

        The list comes from a file, so only what lies in our own folder, and is not in use, goes.
        """
        before = self.confirmed
        if before is None or before.storage is None:
            return
        gone = {file.path for file in before.retired if file.checkpoint_id <= limit}
        history = {file.path for file in before.history}
        in_use = (before.paths - history) | {before.metadata}
        for path in sorted(gone - in_use):
            if path.rpartition("/")[0] == self._folder():
                before.storage.delete(path)
            else:
                _LOG.warning("%s: not deleted, for it is in another subtask's folder", path)
        if gone:
            self.confirmed = attrs.evolve(
                before,
                retired=tuple(file for file in before.retired if file.path not in gone),
                history=tuple(file for file in before.history if file.path not in gone),
            )
