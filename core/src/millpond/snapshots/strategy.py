"""The base class of snapshot strategies. It also deletes files that new snapshots do not need."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, ClassVar

import attrs

from millpond.arguments import CHECKPOINT_IDS, check_type, check_within
from millpond.backend.keyed_backend import KeyedStateBackend
from millpond.backend.operator_state import FrozenState
from millpond.errors import SnapshotTooLargeError
from millpond.snapshots.bundle import Bundle, Inlining
from millpond.snapshots.handles import (
    PORTABLE,
    KeyedStateHandle,
    OperatorStateHandle,
    RetiredFile,
    SnapshotFile,
)
from millpond.snapshots.operator_state import (
    check_readable,
    describe_states,
    element_chunks,
    have_same_content,
)
from millpond.snapshots.paths import BUNDLE_ENDING, new_snapshot_path, snapshot_folder
from millpond.snapshots.restore import has_keys_of
from millpond.snapshots.row_files import Packing
from millpond.snapshots.snapshot_task import SnapshotTask, run_snapshot
from millpond.spi.parameters import Capability
from millpond.spi.portable_rows import StateView
from millpond.spi.snapshots import SnapshotResult
from millpond.storage.checkpoint_storage import CheckpointStorage

_LOG = logging.getLogger("millpond.checkpoint")

_UNDELETABLE = 20
"""Maximum number of files in a handle whose deletion has failed and is to be tried again."""

_LEFT = (
    "%s: %d more files cannot be deleted, and are not tried again: give the right to delete there, "
    "and let `millpond checkpoint gc` delete them"
)


def with_retired(made: KeyedStateHandle, before: KeyedStateHandle | None) -> KeyedStateHandle:
    """Return a copy of `made` that lists the files that only `before` needs as retired files.

    Retired files are deleted once no retained checkpoint needs them.

    Args:
        made: the handle of a new snapshot.
        before: the handle of the snapshot before it, if any.
    """
    if before is None or before.storage != made.storage:
        return made
    used = made.paths | {made.metadata, ""}
    retired = {file.path: file for file in (*made.retired, *before.retired)}
    for path in sorted(before.paths | {before.metadata}):
        retired.setdefault(path, RetiredFile(path, made.checkpoint_id))
    return attrs.evolve(
        made, retired=tuple(file for path, file in retired.items() if path not in used)
    )


_OVERTAKEN = 100
"""Maximum number of overtaken snapshots that are remembered because they may still be aborted.

A snapshot is overtaken if a later snapshot was confirmed. Most overtaken snapshots are never
aborted.
"""


@attrs.define
class _Running:
    """A snapshot that is neither confirmed nor aborted.

    Attributes:
        task: the background part of the snapshot.
        base: the snapshot that was confirmed when this snapshot was taken; None if there was none.
            This snapshot may refer to files of the base.
        covered: the number of the strategy's recorded segments that this snapshot contains.
    """

    task: SnapshotTask
    base: KeyedStateHandle | None
    covered: int

    @property
    def needed(self) -> frozenset[str]:
        """The files of `base`, which this snapshot may need."""
        return frozenset() if self.base is None else self.base.paths | {self.base.metadata}


@attrs.frozen
class PendingSnapshot:
    """A snapshot that is frozen but not written to files yet.

    Attributes:
        handle: the handle, still without files.
        operator_state: the operator state at the time of the snapshot.
        last: the snapshot before this snapshot. Files that only the earlier snapshot needs are
            listed in the handle, to be deleted later.
    """

    handle: KeyedStateHandle
    operator_state: list[FrozenState]
    last: KeyedStateHandle | None

    @property
    def is_empty(self) -> bool:
        """Whether the subtask has no state of any kind, so that nothing has to be written."""
        return not self.handle.states and not self.operator_state


def _note_taken(checkpoint_id: int, running: _Running, taken: dict[int, _Running]) -> None:
    """Add a snapshot at the end of `taken`.

    If `taken` already has the id, the entry is replaced and moved to the end.

    Args:
        checkpoint_id: the snapshot's id. It may be smaller than earlier ids.
        running: the snapshot.
        taken: the snapshots by id, in the order in which the snapshots were taken.
    """
    taken.pop(checkpoint_id, None)
    taken[checkpoint_id] = running


class SnapshotStrategy(ABC):
    """The base class of strategies: a strategy takes the snapshots of one open backend.

    The first part of a snapshot freezes the state on the caller's thread. :meth:`launch` runs the
    second part in the background. Several snapshots may run at once.

    ``confirmed`` is the last snapshot that the caller, usually Spark, has confirmed. A new snapshot
    may refer to the files of ``confirmed``, but not to files of any other snapshot. If
    ``confirmed`` changes while a snapshot runs, the files to which the running snapshot refers
    remain until then.
    """

    name: ClassVar[str]

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        self._running: dict[int, _Running] = {}
        self._overtaken: dict[int, _Running] = {}  # see _OVERTAKEN
        self._unfinished: set[SnapshotTask] = set()
        self.inlining = Inlining.from_config(backend.parameters.config.checkpoint)
        self.packing = Packing.from_config(backend.parameters.config)
        self.confirmed: KeyedStateHandle | None = None
        self._replaced: KeyedStateHandle | None = None

    # ---------------------------------------------------------------- for subclasses to implement

    @abstractmethod
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """Take a snapshot; see ``KeyedStateBackend.snapshot``."""

    def builds_on(self, restored: KeyedStateHandle) -> bool:
        """Return whether new snapshots of this strategy can refer to the files of `restored`."""
        return True

    def _drop_segments(self, covered: int) -> None:
        """Drop the first `covered` recorded segments, which the confirmed snapshot contains.

        This method is called before retired files are deleted.
        """

    # ---------------------------------------------------------------- life cycle

    def start(self, restored: KeyedStateHandle | None) -> None:
        """Begin to take snapshots, after a restore.

        Args:
            restored: the restored snapshot, whose files the strategy may use and delete; None if
                there is none. The snapshot becomes ``confirmed`` if it has the backend's key type
                and new snapshots can refer to its files. Otherwise the next snapshot lists its
                files as retired.
        """
        builds = (
            restored is not None
            and has_keys_of(self._backend, restored.key)
            and self.builds_on(restored)
        )
        self.confirmed, self._replaced = (restored, None) if builds else (None, restored)
        self._running.clear()
        self._overtaken.clear()
        self._drop_outdated()

    def notify_complete(self, checkpoint_id: int) -> None:
        """Make a snapshot the ``confirmed`` one, and delete the files that are no longer needed.

        Do nothing if the snapshot is not pending, for example because it is already confirmed.
        """
        running = self._running.get(checkpoint_id)
        if running is None:
            return
        result = running.task.result()
        ids = list(self._running)
        # Only snapshots that were taken later can still be confirmed.
        later = {number: self._running[number] for number in ids[ids.index(checkpoint_id) + 1 :]}
        for number, overtaken in self._running.items():
            if number != checkpoint_id and number not in later:
                _note_taken(number, overtaken, self._overtaken)
        for number in list(self._overtaken)[:-_OVERTAKEN]:
            del self._overtaken[number]
        self._running = later
        if result.handle is not None:
            self.confirmed = with_retired(result.handle, self.confirmed or self._replaced)
            self._replaced = None
            self._drop_segments(running.covered)
            self._drop_outdated()

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Cancel a snapshot that will not be confirmed, and delete its files."""
        for taken in (self._running, self._overtaken):
            if (running := taken.pop(checkpoint_id, None)) is not None:
                # If the task has already written its files, they must be deleted.
                running.task.cancel()
                running.task.add_done_callback(partial(self._delete_if_done, running.needed))

    def _delete_if_done(self, needed: frozenset[str], task: Future[SnapshotResult]) -> None:
        """Delete the files that the ended `task` of an aborted snapshot has written, if any.

        Args:
            needed: the files of the snapshot's base. These files must remain.
            task: the background part of the snapshot.
        """
        if not task.cancelled() and task.exception() is None:
            self._delete_aborted(task.result().handle, needed)

    def _delete_aborted(self, handle: Any, needed: frozenset[str]) -> None:
        """Delete the files that `handle` names, except the files in `needed`."""
        if isinstance(handle, KeyedStateHandle) and handle.storage is not None:
            for path in sorted((handle.paths | {handle.metadata}) - needed - {""}):
                handle.storage.delete_if_possible(path)

    def notify_subsumed(self, checkpoint_id: int) -> None:
        """Delete the files that only the snapshot with this id and older ones need."""
        self._delete_retired(checkpoint_id + 1)

    def close(self) -> None:
        """Cancel all running snapshots, and wait until they have released the backend."""
        unfinished = list(self._unfinished)
        for task in unfinished:
            task.cancel()
        wait(unfinished)
        self._running.clear()

    # ---------------------------------------------------------------- for subclasses

    def launch(
        self,
        checkpoint_id: int,
        work: Callable[[SnapshotTask], SnapshotResult],
        view: StateView,
        covered: int = 0,
    ) -> SnapshotTask:
        """Run `work`, the second part of a snapshot, and then close the frozen view.

        If the backend supports it, `work` runs in the background, else immediately. The snapshot
        contains the first `covered` segments that the strategy has recorded.
        """
        background = Capability.ASYNC_SNAPSHOT in self._backend.capabilities
        task = run_snapshot(work, view.close, background=background)
        _note_taken(checkpoint_id, _Running(task, self.confirmed, covered), self._running)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    def bundle(self, pending: PendingSnapshot, *, native: bool = False) -> Bundle:
        """Return the writer of a snapshot's file.

        If the snapshot has a `native` format, its parts are never put into the handle.
        """
        storage = pending.handle.storage
        assert storage is not None
        path = self.new_path(pending.handle.checkpoint_id, BUNDLE_ENDING)
        return Bundle(storage, path, Inlining() if native else self.inlining)

    def new_path(self, checkpoint_id: int, suffix: str) -> str:
        """Return a path that ends with `suffix` and that no other attempt of the task uses."""
        return new_snapshot_path(self._folder(), checkpoint_id, suffix)

    def _folder(self) -> str:
        """Return the folder of all snapshots of this operator's key groups."""
        operator = self._backend.parameters.operator
        return snapshot_folder(operator, self._backend.key_group_range)

    def pending_snapshot(self, checkpoint_id: int, storage: CheckpointStorage) -> PendingSnapshot:
        """Freeze the operator state, and return the snapshot with a handle that names no files.

        The backend must have been flushed.
        """
        check_within("checkpoint_id", checkpoint_id, *CHECKPOINT_IDS)
        check_type("storage", storage, CheckpointStorage)
        backend = self._backend
        frozen = backend.operator_state.freeze() if backend.operator_state is not None else []
        handle = KeyedStateHandle(
            checkpoint_id=checkpoint_id,
            version=backend.version or "",
            key_group_range=backend.key_group_range,
            max_parallelism=backend.max_parallelism,
            key=backend.key_codec.snapshot(),
            states=tuple(backend.state_metas()),
            files=(),
            carries=self.inlining.limit > 0,
            storage=storage,
        )
        return PendingSnapshot(handle, frozen, self.confirmed or self._replaced)

    def with_files(
        self,
        pending: PendingSnapshot,
        before: KeyedStateHandle | None,
        files: tuple[SnapshotFile, ...],
        bundle: Bundle,
        history: tuple[SnapshotFile, ...] = (),
        native_format: str = PORTABLE,
    ) -> KeyedStateHandle:
        """Write the operator state and the handle of a snapshot, and return the complete handle.

        If nothing has changed since the confirmed snapshot, nothing is written.

        Args:
            pending: the snapshot.
            before: the confirmed snapshot that this one builds on, if any.
            files: the files of keyed state. If the bytes of a file are stored in the handle of
                `before`, they are copied to the bundle.
            bundle: the bundle with the new parts.
            history: the deltas before `files`, for backends that are only a little behind.
            native_format: the format of the files.
        """
        operator_state = self._written_operator_state(bundle, pending, before)
        made = attrs.evolve(
            pending.handle,
            files=files,
            history=history,
            format=native_format,
            operator_state=operator_state,
        )
        if (
            before is not None
            and before.files == files
            and before.storage == made.storage
            and before.operator_state == operator_state
        ):
            return attrs.evolve(made, metadata=before.metadata, retired=before.retired)
        return bundle.finish(with_retired(bundle.copy_carried(made), pending.last))

    def _written_operator_state(
        self, bundle: Bundle, pending: PendingSnapshot, before: KeyedStateHandle | None
    ) -> tuple[OperatorStateHandle, ...]:
        """Write the operator state to the bundle, and return its handle.

        If the state has not changed since the snapshot `before`, write nothing and return the
        handle from `before`. Return no handle if there is no operator state.
        """
        frozen, storage = pending.operator_state, pending.handle.storage
        if not frozen or storage is None:
            return ()
        number = pending.handle.checkpoint_id
        made = describe_states(number, storage, frozen, bundle.path, bundle.position)
        if before is not None and before.storage == storage and len(before.operator_state) == 1:
            (known,) = before.operator_state
            if have_same_content(known, made) and not (self.inlining.always and known.paths):
                return before.operator_state
        check_readable(made, frozen, self._backend.parameters.config.restore)
        if made.file is not None:
            try:
                for data in element_chunks(frozen, SnapshotTask()):
                    bundle.write(data)
            except SnapshotTooLargeError as error:
                error.state = max(frozen, key=lambda state: state.size).meta.name
                raise
        return (made,)

    def _drop_outdated(self) -> None:
        """Delete retired files that no retained checkpoint needs."""
        if self.confirmed is not None:
            retained = self._backend.parameters.config.checkpoint.retained
            self._delete_retired(self.confirmed.checkpoint_id - retained + 1)

    def _delete_retired(self, limit: int) -> None:
        """Delete retired files, except files that snapshots with ids from `limit` on need.

        The confirmed handle lists the retired files. The handle was read from a file, so only
        unused files in the subtask's own folder are deleted. Files to which a running snapshot
        refers remain until a later call.

        If files cannot be deleted, the newest of these files remain in the list and are tried
        again. Older ones are dropped from the list, so that it does not grow without limit.
        """
        handle, folder = self.confirmed, self._folder()
        if handle is None or handle.storage is None:
            return
        needed = frozenset[str]().union(*(each.needed for each in self._running.values()))
        outdated = {f.path: f.checkpoint_id for f in handle.retired if f.checkpoint_id <= limit}
        gone = outdated.keys() - needed
        failed: list[str] = []
        for path in sorted(gone - handle.needed_paths - {handle.metadata}):
            if path.rpartition("/")[0] != folder:
                _LOG.warning("%s: not deleted, for it is in another subtask's folder", path)
            elif not handle.storage.delete_if_possible(path):
                failed.append(path)
        if len(failed) > _UNDELETABLE:
            _LOG.warning(_LEFT, folder, len(failed) - _UNDELETABLE)
        failed.sort(key=lambda path: (outdated[path], path))
        forgotten = gone - set(failed[-_UNDELETABLE:])
        if gone:
            self.confirmed = attrs.evolve(
                handle,
                retired=tuple(file for file in handle.retired if file.path not in forgotten),
                history=tuple(file for file in handle.history if file.path not in gone),
            )
