"""The base of snapshot strategies; files of retired snapshots."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import ClassVar, TypeVar

import attrs

from millpond.arguments import CHECKPOINT_IDS, check_type, check_within
from millpond.backend.keyed import KeyedStateBackend
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
from millpond.spi.rows import StateView
from millpond.spi.snapshots import SnapshotResult
from millpond.storage.checkpoint_storage import CheckpointStorage

_LOG = logging.getLogger("millpond.checkpoint")

_UNDELETABLE = 20
"""So many files that cannot be deleted are tried again, and stay in the handle's list, at most."""

_LEFT = (
    "%s: %d more files cannot be deleted, and are not tried again: give the right to delete there, "
    "and let `millpond checkpoint gc` delete them"
)


def with_retired(made: KeyedStateHandle, before: KeyedStateHandle | None) -> KeyedStateHandle:
    """``made``, whose list of retired files has what ``before`` has beyond its files."""
    if before is None or before.storage != made.storage:
        return made
    used = made.paths | {made.metadata, ""}
    retired = {file.path: file for file in (*made.retired, *before.retired)}
    for path in sorted(before.paths | {before.metadata}):
        retired.setdefault(path, RetiredFile(path, made.checkpoint_id))
    return attrs.evolve(
        made, retired=tuple(file for path, file in retired.items() if path not in used)
    )


def without_outdated(
    handle: KeyedStateHandle, limit: int, needed: frozenset[str], folder: str
) -> KeyedStateHandle:
    """Delete the retired files that are of no more use, and return the handle without them.

    The list comes from a file, so only what lies in our own folder, and is not in use, goes. The
    last few files that cannot be deleted stay in the list.

    Args:
        handle: the confirmed snapshot.
        limit: files go that the snapshot with this number, and all after it, do without.
        needed: what stays in any case.
        folder: where all snapshots of these key groups lie.
    """
    if handle.storage is None:
        return handle
    outdated = {f.path: f.checkpoint_id for f in handle.retired if f.checkpoint_id <= limit}
    gone = outdated.keys() - needed
    if not gone:
        return handle
    in_use = handle.needed_paths | {handle.metadata}
    storage = handle.storage
    failed = [path for path in sorted(gone - in_use) if not _is_gone(storage, path, folder)]
    kept = _tried_again(failed, outdated, folder)
    return attrs.evolve(
        handle,
        retired=tuple(file for file in handle.retired if file.path not in gone - kept),
        history=tuple(file for file in handle.history if file.path not in gone),
    )


def _is_gone(storage: CheckpointStorage, path: str, folder: str) -> bool:
    """Delete a file that was retired; False where it has to be tried again."""
    if path.rpartition("/")[0] == folder:
        return storage.delete_if_possible(path)
    _LOG.warning("%s: not deleted, for it is in another subtask's folder", path)
    return True


def _tried_again(failed: list[str], retired: Mapping[str, int], folder: str) -> set[str]:
    """Those files that stay in the list, for they cannot be deleted now: the newest ones.

    Where nothing can be deleted, the list would grow, and with it what each batch tries.
    """
    by_age = sorted(failed, key=lambda path: (retired[path], path))
    if len(failed) > _UNDELETABLE:
        _LOG.warning(_LEFT, folder, len(failed) - _UNDELETABLE)
    return set(by_age[-_UNDELETABLE:])


T = TypeVar("T")

_OVERTAKEN = 100
"""So many overtaken snapshots are known, should they be aborted: most are never heard of again."""


@attrs.frozen
class _Running:
    """A snapshot that is neither confirmed nor aborted, and the confirmed one it builds on."""

    task: SnapshotTask
    base: KeyedStateHandle | None

    @property
    def needed(self) -> frozenset[str]:
        """The files that this snapshot may refer to."""
        return frozenset() if self.base is None else self.base.paths | {self.base.metadata}


@attrs.frozen
class BlankHandle:
    """A snapshot without files yet: its handle, and the operator state as it was when it was taken.

    It belongs to one attempt, for an aborted one may still run when its number is taken again.
    ``last`` is the snapshot before it, whose files it retires where it does without them.
    """

    handle: KeyedStateHandle
    operator_state: list[FrozenState]
    last: KeyedStateHandle | None

    @property
    def is_empty(self) -> bool:
        """Whether the subtask has no state of any kind, so that there is nothing to write."""
        return not self.handle.states and not self.operator_state

    @property
    def operator_state_bytes(self) -> int:
        """How large the operator state is."""
        return sum(state.size for state in self.operator_state)


def note_taken(checkpoint_id: int, noted: T, taken: dict[int, T]) -> None:
    """Note a snapshot as the last one that was taken; its id may be smaller than others."""
    taken.pop(checkpoint_id, None)
    taken[checkpoint_id] = noted


def taken_after(checkpoint_id: int, taken: dict[int, T]) -> dict[int, T]:
    """Those that were taken after a snapshot: the others hold less, and never count after it."""
    ids = list(taken)
    return {number: taken[number] for number in ids[ids.index(checkpoint_id) + 1 :]}


class SnapshotStrategy(ABC):
    """One way to take snapshots of one opened backend.

    A snapshot has a short part on the caller's thread, which freezes the state, and a part
    that :meth:`launch` runs by itself. Several may run at once. ``confirmed`` is the last
    snapshot that is known to count; only on that one may another build. It may change while a
    snapshot runs, which goes on with the one of its beginning; that one's files stay so long.
    """

    name: ClassVar[str]

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        self._running: dict[int, _Running] = {}
        self._overtaken: dict[int, _Running] = {}  # by a later one's confirmation; may be aborted
        self._unfinished: set[SnapshotTask] = set()
        self.inlining = Inlining.from_config(backend.parameters.config.checkpoint)
        self.packing = Packing.from_config(backend.parameters.config)
        self.confirmed: KeyedStateHandle | None = None
        self._replaced: KeyedStateHandle | None = None

    # ---------------------------------------------------------------- what a subclass adds

    @abstractmethod
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        """Take a snapshot; see ``KeyedStateBackend.snapshot``."""

    def builds_on(self, restored: KeyedStateHandle) -> bool:
        """Whether a snapshot can refer to files of this one; if not, the first one replaces it."""
        return True

    def _count_from(self, checkpoint_id: int) -> None:
        """This snapshot is ``confirmed`` from now on; called before outdated files go."""

    # ---------------------------------------------------------------- life cycle

    def start(self, restored: KeyedStateHandle | None) -> None:
        """Begin at the confirmed snapshot of exactly the backend's state; None if there is none.

        One of another strategy's format, or of keys that have been rewritten, is replaced.
        """
        builds = restored is not None and self._continues(restored)
        self.confirmed, self._replaced = (restored, None) if builds else (None, restored)
        self._running.clear()
        self._overtaken.clear()
        self._drop_outdated()

    @property
    def _last(self) -> KeyedStateHandle | None:
        """The confirmed snapshot, or the restored one that nothing builds on."""
        return self.confirmed or self._replaced

    def _continues(self, restored: KeyedStateHandle) -> bool:
        return has_keys_of(self._backend, restored.key) and self.builds_on(restored)

    def notify_complete(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed: later ones may build on it, and older ones are subsumed."""
        running = self._running.get(checkpoint_id)
        if running is None:
            return
        result = running.task.result()
        later = taken_after(checkpoint_id, self._running)
        for number, overtaken in self._running.items():
            if number != checkpoint_id and number not in later:
                note_taken(number, overtaken, self._overtaken)
        for number in list(self._overtaken)[:-_OVERTAKEN]:
            del self._overtaken[number]
        self._running = later
        if result.handle is not None:
            self.confirmed = with_retired(result.handle, self._last)
            self._replaced = None
            self._count_from(checkpoint_id)
            self._drop_outdated()

    def notify_aborted(self, checkpoint_id: int) -> None:
        """A snapshot will never count: cancel it, and delete what it has written by itself."""
        for taken in (self._running, self._overtaken):
            if checkpoint_id in taken:
                self._abort(taken.pop(checkpoint_id))

    def _abort(self, running: _Running) -> None:
        if running.task.done():
            self._delete_aborted(running)
        else:
            # It may be too late for it to notice, and then there are files to delete.
            running.task.cancel()
            running.task.add_done_callback(lambda _: self._delete_aborted(running))

    def _delete_aborted(self, running: _Running) -> None:
        task = running.task
        if task.cancelled() or task.exception() is not None:
            return
        handle = task.result().handle
        if isinstance(handle, KeyedStateHandle) and handle.storage is not None:
            for path in sorted((handle.paths | {handle.metadata}) - running.needed - {""}):
                handle.storage.delete_if_possible(path)

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
        note_taken(checkpoint_id, _Running(task, self.confirmed), self._running)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    def bundle(self, blank: BlankHandle, *, native: bool = False) -> Bundle:
        """What takes the parts of a snapshot; a native format's are never the handle's to carry."""
        storage = blank.handle.storage
        assert storage is not None
        path = self.new_path(blank.handle.checkpoint_id, BUNDLE_ENDING)
        return Bundle(storage, path, Inlining() if native else self.inlining)

    def new_path(self, checkpoint_id: int, suffix: str) -> str:
        """A path that no other attempt uses."""
        return new_snapshot_path(self._folder(), checkpoint_id, suffix)

    def _folder(self) -> str:
        """Where all snapshots of this operator's key groups lie."""
        operator = self._backend.parameters.operator
        return snapshot_folder(operator, self._backend.key_group_range)

    def blank_handle(self, checkpoint_id: int, storage: CheckpointStorage) -> BlankHandle:
        """The handle of the flushed backend, with no files yet; freezes the operator state."""
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
        return BlankHandle(handle, frozen, self._last)

    def with_files(
        self,
        blank: BlankHandle,
        before: KeyedStateHandle | None,
        files: tuple[SnapshotFile, ...],
        bundle: Bundle,
        history: tuple[SnapshotFile, ...] = (),
        native_format: str = PORTABLE,
    ) -> KeyedStateHandle:
        """The complete handle, written or carrying its parts.

        What the snapshot before it has beyond its files is retired; what ``before``, its base,
        carries goes into the bundle.
        """
        operator_state = self._written_operator_state(bundle, blank, before)
        made = attrs.evolve(
            blank.handle,
            files=files,
            history=history,
            format=native_format,
            operator_state=operator_state,
        )
        unchanged = (
            before is not None
            and before.files == files
            and before.storage == made.storage
            and before.operator_state == operator_state
        )
        if before is not None and unchanged:
            return attrs.evolve(made, metadata=before.metadata, retired=before.retired)
        return bundle.finish(with_retired(bundle.copy_carried(made), blank.last))

    def _written_operator_state(
        self, bundle: Bundle, blank: BlankHandle, before: KeyedStateHandle | None
    ) -> tuple[OperatorStateHandle, ...]:
        """The frozen operator state in the storage; that of the base if unchanged."""
        frozen, storage = blank.operator_state, blank.handle.storage
        if not frozen or storage is None:
            return ()
        number = blank.handle.checkpoint_id
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
                largest = max(frozen, key=lambda state: state.size)
                raise attrs.evolve(error, state=largest.meta.name) from None
        return (made,)

    def _drop_outdated(self) -> None:
        """Delete what no snapshot within the retained number needs any more."""
        if self.confirmed is not None:
            retained = self._backend.parameters.config.checkpoint.retained
            self._delete_retired(self.confirmed.checkpoint_id - retained + 1)

    def _delete_retired(self, limit: int) -> None:
        """Delete files that the snapshot with this number, and all after it, do without.

        What a running snapshot builds on stays in the list until a later call.
        """
        if self.confirmed is not None:
            needed = frozenset[str]().union(*(each.needed for each in self._running.values()))
            folder = self._folder()
            self.confirmed = without_outdated(self.confirmed, limit, needed, folder)
