"""The rules by which files in a checkpoint directory are deleted.

Each snapshot lists the files of earlier snapshots that it does not need; see ``SnapshotStrategy``.
This module is about two other kinds of files that are not needed any more. A layout is a division
of an operator's key groups among its subtasks; see ``millpond.snapshots.layouts``.

*Files from before a layout.* A query may start from any of its retained checkpoints. The *base* is
the layout that was used at the oldest retained checkpoint. Snapshots under a layout do not refer to
older files. There is one exception: a subtask that has no snapshot under the layout yet restores
from the layout's *sources*, snapshots from before the layout. Therefore all files from before the
base may be deleted, except the files of the base's sources. The sources may be deleted, too, when
every subtask has a committed checkpoint under the base up to the oldest retained checkpoint.

*Files of lost attempts.* A lost attempt is an attempt of a task that Spark did not commit. A
committed snapshot names every file that it needs, and every file that an older retained checkpoint
of its subtask needs. Any other file was written by a lost attempt. The file may be deleted when it
is older than the subtask's snapshot at the oldest retained checkpoint, unless a newer attempt
refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import CUT_OFF
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.layouts import StoredLayout, SubtaskRecord, read_record
from millpond.snapshots.paths import (
    SnapshotPath,
    layout_folder,
    parse_layout_path,
    parse_record_path,
)
from millpond.snapshots.subtasks import Subtask, read_subtask
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import begun_path


def snapshot_files(paths: Iterable[str]) -> dict[str, SnapshotPath]:
    """Return the files of snapshots among `paths`, including unfinished files."""
    found = {path: SnapshotPath.parse(begun_path(path) or path) for path in paths}
    return {path: file for path, file in found.items() if file is not None}


def temporary_files(paths: Iterable[str]) -> dict[str, tuple[OperatorId, int]]:
    """Return the incomplete files among `paths`, the files of a local directory.

    The result maps each file to the operator and the checkpoint id of its snapshot.
    """
    begun = {path: SnapshotPath.parse(begun_path(path)) for path in paths}
    return {path: (of.operator, of.checkpoint_id) for path, of in begun.items() if of is not None}


def without_cut_off(
    subtasks: tuple[Subtask, ...], layouts: Mapping[str, frozenset[str]]
) -> tuple[Subtask, ...]:
    """Return the subtasks without the truncated files of lost attempts in `broken`.

    In a storage without renames, a killed writer leaves a truncated file. A snapshot names all
    files of the committed snapshot before it. So a truncated file belongs to a lost attempt if no
    snapshot names the file and the subtask has a newer snapshot. Any other truncated file counts as
    damaged.
    """
    found = {
        path
        for each in subtasks
        for path, reason in each.broken.items()
        if reason == CUT_OFF and any(h.checkpoint_id > each.files[path] for h in each.handles)
    }
    if not found:
        return subtasks
    every = (h for each in subtasks for h in (*each.handles, *each.outlived))
    found -= frozenset[str]().union(*layouts.values(), *(h.all_paths for h in every))
    return tuple(
        attrs.evolve(each, broken={p: why for p, why in each.broken.items() if p not in found})
        for each in subtasks
    )


@attrs.frozen
class LayoutHistory:
    """The layouts of an operator, and the checkpoints that its subtasks have recorded.

    Attributes:
        layouts: the readable layouts, by ascending number.
        records: the subtasks' records, by the layout's number and the subtask's key groups.
        paths: all files in the folder of the operator's layouts.
    """

    layouts: tuple[StoredLayout, ...]
    records: Mapping[tuple[int, KeyGroupRange], SubtaskRecord]
    paths: tuple[str, ...]

    @classmethod
    def read(
        cls,
        storage: CheckpointStorage,
        operator: OperatorId,
        layouts: Iterable[StoredLayout],
        paths: Iterable[str],
    ) -> LayoutHistory:
        """Return the history of an operator, with the records that its subtasks have written.

        Args:
            storage: the checkpoint directory.
            operator: the operator.
            layouts: the operator's readable layouts, by ascending number.
            paths: all files of the directory.
        """
        mine = tuple(path for path in paths if path.startswith(f"{layout_folder(operator)}/"))
        parsed = {path: record for path in mine if (record := parse_record_path(path))}
        records = {record[1:]: read_record(storage, path) for path, record in parsed.items()}
        return cls(tuple(layouts), records, mine)

    @property
    def savepoint(self) -> str:
        """The URI of the savepoint from which the newest layout starts; empty without one."""
        return self.layouts[-1].savepoint if self.layouts else ""

    @property
    def is_dropped(self) -> bool:
        """Whether the query no longer has the operator."""
        return bool(self.layouts) and self.layouts[-1].is_dropped

    def begun(self, checkpoint_id: int | None) -> list[KeyGroupRange]:
        """Return the key groups of the subtasks that have taken snapshots under the current layout.

        The current layout is the last layout under which batches may have run. Snapshots after
        `checkpoint_id` are ignored, unless `checkpoint_id` is None.
        """
        numbers = [each.number for each in self.layouts if each.is_begun and not each.is_dropped]
        return [
            groups
            for (number, groups), record in self.records.items()
            if number in numbers[-1:] and record.first is not None
            if checkpoint_id is None or record.first <= checkpoint_id
        ]

    def base(self, oldest: int) -> StoredLayout | None:
        """Return the layout that was used at the oldest retained checkpoint, `oldest`.

        Return None if this layout is unknown.
        """
        known = [
            each
            for each in self.layouts
            if each.is_begun and each.first_id is not None and each.first_id <= oldest
        ]
        return known[-1] if known else None

    def is_taken_over(self, base: StoredLayout, oldest: int) -> bool:
        """Return whether no subtask needs the sources of the layout `base` any longer.

        A subtask does not need them if it has a committed checkpoint under `base` up to `oldest`.
        """
        if base.is_dropped or not base.sources:
            return True
        records = [self.records.get((base.number, groups)) for groups in base.divisions]
        committed = [None if record is None else record.committed for record in records]
        return bool(committed) and all(each is not None and each <= oldest for each in committed)

    def needed_sources(self, oldest: int) -> frozenset[str]:
        """Return the files of all sources from which a subtask may still start."""
        base = self.base(oldest)
        later = (each for each in self.layouts if base is None or each.number > base.number)
        needed = frozenset[str]().union(*(each.source_paths for each in later))
        if base is None or self.is_taken_over(base, oldest):
            return needed
        return needed.union(*(source.paths | {source.metadata} for source in base.sources))

    def outlived(self, files: Mapping[str, SnapshotPath], oldest: int) -> frozenset[str]:
        """Return the files among `files` that are from before the base; see the module's docstring.

        The base is the layout at the oldest retained checkpoint, `oldest`. A folder that neither
        the base nor a later layout uses may hold files with the id of the base's first checkpoint.
        These files belong to an attempt that was lost when the layout changed, so they are returned
        as well. If the folder also has files with higher ids, a query that was not stopped still
        writes there. Then the folder's files with the first id or a higher id are not returned.
        """
        base = self.base(oldest)
        if base is None or base.first_id is None:
            return frozenset()
        later = (each.divisions for each in self.layouts if each.number >= base.number)
        divisions = frozenset[KeyGroupRange]().union(*later)
        newest: dict[str, int] = {}
        for file in files.values():
            newest[file.folder] = max(file.checkpoint_id, newest.get(file.folder, 0))
        return frozenset(
            path
            for path, file in files.items()
            if file.checkpoint_id < base.first_id
            or (file.key_group_range not in divisions and newest[file.folder] <= base.first_id)
        )

    def outlived_layouts(self, oldest: int) -> list[str]:
        """Return the files of layouts and records from before the base.

        The base is the layout at the oldest retained checkpoint, `oldest`. While the sources of the
        base are needed, the files of the layout just before the base are not returned, because they
        show that the base has sources.
        """
        base = self.base(oldest)
        earlier = [each.number for each in self.layouts if base and each.number < base.number]
        if base is None or not earlier:
            return []
        first = base.number if self.is_taken_over(base, oldest) else earlier[-1]
        found = []
        for path in self.paths:
            complete = begun_path(path) or path
            parsed = parse_layout_path(complete) or parse_record_path(complete)
            if parsed is not None and parsed[1] < first:
                found.append(path)
        return found


def lost_attempts(
    storage: CheckpointStorage, folder: str, committed: KeyedStateHandle, first: int, oldest: int
) -> list[str]:
    """Return the files of lost attempts in a subtask's folder that may be deleted.

    An attempt since the subtask's oldest retained snapshot may refer to other attempts' files. If
    the metadata of such an attempt cannot be read, return no files.

    Args:
        storage: the storage of the files.
        folder: the subtask's folder.
        committed: the subtask's committed snapshot.
        first: the first checkpoint under the present layout; earlier files are ignored.
        oldest: the oldest retained checkpoint.
    """
    named = committed.all_paths
    # Any attempt of a retained checkpoint may be the one that Spark or another executor refers to.
    known = [file.checkpoint_id for file in snapshot_files(named).values()]
    retained = [number for number in known if number <= oldest]
    start = max(retained, default=min(oldest, committed.checkpoint_id))
    unnamed = {
        path: file
        for path, file in snapshot_files(storage.list(folder)).items()
        if file.checkpoint_id >= first and path not in named
    }
    old = {path for path, file in unnamed.items() if file.checkpoint_id < start}
    return sorted(old - _referred_to(storage, unnamed, start)) if old else []


def _referred_to(
    storage: CheckpointStorage, unnamed: Mapping[str, SnapshotPath], start: int
) -> frozenset[str]:
    """Return the files that are named by attempts with checkpoint ids from `start` on.

    If the metadata of such an attempt cannot be read, return all files in `unnamed`.

    Args:
        storage: the storage of the files.
        unnamed: the files of the subtask that its committed snapshot does not name.
        start: the first checkpoint id.
    """
    recent = {
        path: file
        for path, file in unnamed.items()
        if file.checkpoint_id >= start and not begun_path(path)
    }
    if not recent:
        return frozenset()
    rivals = read_subtask(storage, recent)
    if rivals.broken:
        return frozenset(unnamed)
    return frozenset[str]().union(*(handle.all_paths for handle in rivals.handles))
