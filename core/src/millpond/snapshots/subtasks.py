"""The snapshots in a subtask's folder, and the key groups whose snapshots are deleted."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import attrs

from millpond.errors import CorruptSnapshotError, MillpondError
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import read_bundled
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.paths import BUNDLE_ENDING, SnapshotPath
from millpond.storage.checkpoint_storage import CheckpointStorage


@attrs.frozen
class Subtask:
    """A subtask of an operator, with the snapshots in its folder.

    Attributes:
        folder: the path of the folder; see ``millpond.snapshots.paths``.
        operator: the operator.
        key_group_range: the subtask's key groups, from the name of the folder.
        handles: the snapshots by ascending checkpoint id.
        files: all files in the folder, each with the checkpoint id in its name.
        broken: metadata files that cannot be read, each with the reason.
        outlived: snapshots that cannot be restored, because files that they need were deleted after
            newer snapshots were taken. These snapshots are not among the handles.
    """

    folder: str
    operator: OperatorId
    key_group_range: KeyGroupRange
    handles: tuple[KeyedStateHandle, ...]
    files: dict[str, int]
    broken: dict[str, str]
    outlived: tuple[KeyedStateHandle, ...] = ()

    def at(self, checkpoint_id: int | None) -> list[KeyedStateHandle]:
        """Return the newest snapshot up to `checkpoint_id`, or of all if it is None, as a list.

        The list is empty if there is no such snapshot. It has several handles if several attempts
        have written a snapshot with this id.
        """
        known = [
            h for h in self.handles if checkpoint_id is None or h.checkpoint_id <= checkpoint_id
        ]
        return [h for h in known if h.checkpoint_id == known[-1].checkpoint_id]

    def with_outlived(self) -> Subtask:
        """Return a copy of the subtask with the outlived snapshots among the handles.

        Outlived snapshots cannot be restored, but they show which checkpoints the subtask has had.
        """
        every = sorted((*self.handles, *self.outlived), key=lambda handle: handle.checkpoint_id)
        return attrs.evolve(self, handles=tuple(every), outlived=())

    def unnamed(self, checkpoint_id: int | None) -> int:
        """Return the newest id of a file that is newer than all readable snapshots.

        Files after `checkpoint_id` are ignored, unless it is None. Return -1 if there is no such
        file. Return -1 also if the subtask has no readable snapshot, because the caller then
        reports the subtask's key groups as missing.
        """
        known = self.with_outlived().at(checkpoint_id) if self.at(checkpoint_id) else []
        numbers = self.files.values()
        newest = max(
            (n for n in numbers if checkpoint_id is None or n <= checkpoint_id), default=-1
        )
        return newest if known and newest > known[-1].checkpoint_id else -1


def read_subtask(storage: CheckpointStorage, files: dict[str, SnapshotPath]) -> Subtask:
    """Read the snapshots in a subtask's folder; `files` has at least one file of the folder."""
    found: list[KeyedStateHandle] = []
    broken: dict[str, str] = {}
    for path, file in files.items():
        if not path.endswith(f".{BUNDLE_ENDING}"):
            continue
        try:
            handle = KeyedStateHandle.from_json(read_bundled(storage, path), storage)
        except MillpondError as error:
            broken[path] = reason_of(error)
            continue
        expected = (file.key_group_range, file.checkpoint_id)
        if (handle.key_group_range, handle.checkpoint_id) != expected:
            broken[path] = f"it describes checkpoint {handle.checkpoint_id} of other key groups"
        elif handle.metadata != path:
            written = f"it was written as {handle.metadata!r} in its checkpoint directory"
            broken[path] = f"{written}; name that directory, or move the file back"
        else:
            found.append(handle)
    found.sort(key=lambda handle: handle.checkpoint_id)
    one = next(iter(files.values()))
    numbers = {path: file.checkpoint_id for path, file in files.items()}
    return Subtask(one.folder, one.operator, one.key_group_range, tuple(found), numbers, broken)


def without_outlived(subtask: Subtask, present: Container[str]) -> Subtask:
    """Return the subtask with its outlived snapshots moved from `handles` to `outlived`.

    A snapshot is outlived if files that it needs were deleted because newer snapshots do not need
    them. If the newest snapshot needs a missing file, the snapshot is damaged instead, and readers
    of the file raise errors.

    Args:
        subtask: the subtask.
        present: the existing files.
    """
    kept = frozenset[str]().union(*(newest.paths for newest in subtask.at(None)))
    outlived = tuple(
        handle
        for handle in subtask.handles
        if any(path not in present for path in handle.needed_paths - kept)
    )
    handles = tuple(handle for handle in subtask.handles if handle not in outlived)
    return attrs.evolve(subtask, handles=handles, outlived=outlived) if outlived else subtask


def reason_of(error: MillpondError) -> str:
    """Return the reason in an error about a metadata file, without the name of the file."""
    return error.reason if isinstance(error, CorruptSnapshotError) else str(error)


def gone_groups(
    subtasks: Sequence[Subtask], checkpoint_id: int, covered: Mapping[int, int]
) -> set[int]:
    """Return the key groups whose snapshot for a checkpoint is deleted, or may be deleted.

    For each key group, the first snapshot after the checkpoint names files of earlier snapshots.
    The names of these files contain the earlier ids. If the snapshot with the newest of these ids
    is not readable, the snapshot for the checkpoint is deleted. If no earlier file is named, the
    key group had no row at the checkpoint. But if Spark's pointers may contain snapshots, this is
    not certain, and the key group counts as deleted. Outlived snapshots count as deleted, too.

    Args:
        subtasks: all subtasks of the operator.
        checkpoint_id: the checkpoint.
        covered: the key groups with snapshots up to the checkpoint, each with the newest id of its
            snapshots.
    """
    gone: set[int] = set()
    # By key group: the ids of the first snapshot after the checkpoint, and of the one before it.
    following: dict[int, tuple[int, int]] = {}
    for subtask in map(Subtask.with_outlived, subtasks):
        for handle in subtask.at(checkpoint_id)[-1:]:
            number = handle.checkpoint_id
            gone |= {g for g in subtask.key_group_range if covered.get(g, -1) < number}
        newer = next((h for h in subtask.handles if h.checkpoint_id > checkpoint_id), None)
        if newer is None:
            continue
        # The newest ids, by key groups, of files that the snapshot has replaced or builds on.
        before = {newer.key_group_range: 0} if newer.carries else {}
        for file in filter(None, map(SnapshotPath.parse, newer.all_paths)):
            if file.checkpoint_id < newer.checkpoint_id:
                known = before.get(file.key_group_range, -1)
                before[file.key_group_range] = max(known, file.checkpoint_id)
        for group in subtask.key_group_range:
            if group not in following or newer.checkpoint_id < following[group][0]:
                ids = [number for groups, number in before.items() if group in groups]
                following[group] = (newer.checkpoint_id, max(ids, default=-1))
    return gone | {g for g, (_, last) in following.items() if last > covered.get(g, -1)}


def newest_id(subtasks: Iterable[Subtask]) -> int:
    """Return the id of the newest snapshot, or 0 if there are no snapshots."""
    return max((h.checkpoint_id for each in subtasks for h in each.handles), default=0)
