"""The layouts of a checkpoint directory, and the rules for deleting files that are not needed.

A layout is a division of an operator's key groups among its subtasks. Spark's driver writes a new
one, for example, if the parallelism changes. Two kinds of files are not needed any more.

*Files from before a layout.* A query may start from any of its retained checkpoints. The *base* is
the layout that was in force at the oldest retained checkpoint. Snapshots under a layout refer to no
older files, with one exception: a subtask that has no snapshot under the layout yet restores from
the layout's *sources*. All files from before the base may therefore be deleted, except those of the
base's sources. The sources may be deleted when every subtask has a committed checkpoint under the
base that is not newer than the oldest retained checkpoint.

*Files of lost attempts.* A committed snapshot names every file that it, or an older retained
checkpoint of its subtask, needs. Any other file was written by an attempt that Spark did not
commit. It may be deleted when it is older than the subtask's snapshot at the oldest retained
checkpoint, unless a newer attempt refers to it.

The folder of the layouts also holds records of subtasks, and the settings of the query. Spark's
pointers show which subtasks have run under a layout, but only Spark can read them. Each subtask
therefore writes a record when it takes its first snapshot under a layout, and again when Spark
gives it a committed pointer of the layout. After that, the subtask restores nothing from before the
layout. If a record or the settings cannot be read, their contents count as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from millpond.errors import MillpondError
from millpond.keygroups import KeyGroupRange, key_group_range
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding, exact_int, exact_text, parse_json
from millpond.snapshots.bundle import CUT_OFF, read_sealed, write_sealed
from millpond.snapshots.handles import KeyedStateHandle, snapshot_converter
from millpond.snapshots.paths import (
    SnapshotPath,
    layout_folder,
    parse_layout_path,
    parse_record_path,
    record_path,
    settings_path,
)
from millpond.snapshots.subtasks import Subtask, read_subtask, reason_of
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import begun_path


def temporary_files(paths: Iterable[str]) -> dict[str, tuple[OperatorId, int]]:
    """Return the files among `paths` that writers to a local directory have not completed.

    Each file has the operator and the checkpoint id of its snapshot.
    """
    begun = {path: SnapshotPath.parse(begun_path(path)) for path in paths}
    return {path: (of.operator, of.checkpoint_id) for path, of in begun.items() if of is not None}


def without_cut_off(
    subtasks: tuple[Subtask, ...], layouts: Mapping[str, frozenset[str]]
) -> tuple[Subtask, ...]:
    """Return the subtasks with fewer `broken` files: without the truncated files of lost attempts.

    In a storage without renames, a killed writer leaves a truncated file. A snapshot names all
    files of the committed snapshot before it. So a truncated file that no snapshot names belongs to
    a lost attempt if the subtask has a newer snapshot. Otherwise the truncation is damage.
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
class StoredLayout:
    """The contents that tools need of a layout's file, which Spark's driver writes.

    Attributes:
        number: the layout's number, counted from 0. The layout with the highest number is in force.
        sources: the snapshots from which the layout's subtasks start.
        first_id: the first checkpoint that may be written under the layout; None if the file does
            not say.
        divisions: the key groups of each subtask; empty if the operator was dropped.
        is_begun: whether batches may have run under the layout.
        is_dropped: whether the layout marks an operator that its query no longer has.
        savepoint: the URI of the savepoint from which the subtasks start; empty without one.
    """

    number: int
    sources: tuple[KeyedStateHandle, ...] = ()
    first_id: int | None = None
    divisions: frozenset[KeyGroupRange] = frozenset()
    is_begun: bool = True
    is_dropped: bool = False
    savepoint: str = ""

    @property
    def source_paths(self) -> frozenset[str]:
        """All files that the sources of the layout name."""
        return frozenset[str]().union(*(source.all_paths for source in self.sources))


@attrs.define
class StoredLayouts:
    """The layouts of all operators in a checkpoint directory.

    Attributes:
        readable: the readable layouts of each operator, by ascending number.
        in_force: the file of each operator's newest layout, with the files that its sources name.
        broken: files of newest layouts that cannot be read, each with the reason. The sources of
            these layouts are unknown.
        outdated: incomplete files that drivers have left, of layouts that are not newer than the
            newest complete one.
    """

    readable: dict[OperatorId, list[StoredLayout]] = attrs.field(factory=dict)
    in_force: dict[str, frozenset[str]] = attrs.field(factory=dict)
    broken: dict[str, str] = attrs.field(factory=dict)
    outdated: list[str] = attrs.field(factory=list)


def read_layouts(storage: CheckpointStorage, paths: Iterable[str]) -> StoredLayouts:
    """Read the layouts among `paths`, the files of a directory.

    Older layouts that cannot be read are skipped.
    """
    found = StoredLayouts()
    by_operator: dict[OperatorId, list[tuple[int, str]]] = {}
    begun = dict[str, tuple[OperatorId, int]]()
    for path in paths:
        if layout := parse_layout_path(path):
            by_operator.setdefault(layout[0], []).append((layout[1], path))
        elif layout := parse_layout_path(begun_path(path)):
            begun[path] = layout
    for operator, mine in by_operator.items():
        readable: list[StoredLayout] = []
        for number, path in sorted(mine, reverse=True):
            try:
                stored = _stored_layout(storage, path, number)
            except MillpondError as error:
                if readable:
                    continue
                found.in_force[path] = frozenset()
                found.broken[path] = reason_of(error)
                break
            if not readable:
                found.in_force[path] = stored.source_paths
            readable.insert(0, stored)
        found.readable[operator] = readable
    newest = {operator: known[-1].number for operator, known in found.readable.items() if known}
    found.outdated += [
        path for path, (operator, number) in begun.items() if number <= newest.get(operator, -1)
    ]
    return found


def _stored_layout(storage: CheckpointStorage, path: str, number: int) -> StoredLayout:
    """Return the layout with this `number` from its file `path`."""
    with decoding(path, "it is not a layout"):
        body: dict[str, Any] = parse_json(read_sealed(storage, path))
        settled, status = body.get("settled_after"), body.get("status", "begun")
        divisions = list[KeyGroupRange]()
        if "parallelism" in body and status != "dropped":
            total = exact_int(body["max_parallelism"], int)
            count = exact_int(body["parallelism"], int)
            divisions += (key_group_range(total, count, index) for index in range(count))
        return StoredLayout(
            number=number,
            sources=tuple(KeyedStateHandle.from_json(text, storage) for text in body["sources"]),
            first_id=None if settled is None else exact_int(settled, int) + 2,
            divisions=frozenset(divisions),
            is_begun=status != "prepared",
            is_dropped=status == "dropped",
            savepoint=exact_text(body.get("savepoint", ""), str),
        )


def snapshot_files(paths: Iterable[str]) -> dict[str, SnapshotPath]:
    """Return the files of snapshots among `paths`, including unfinished files."""
    found = {path: SnapshotPath.parse(begun_path(path) or path) for path in paths}
    return {path: file for path, file in found.items() if file is not None}


@attrs.frozen
class LayoutHistory:
    """The layouts of an operator, and the checkpoints that its subtasks have recorded.

    Attributes:
        layouts: the readable layouts, by ascending number.
        records: the subtasks' records, by the layout's number and the subtask's key groups.
        paths: all files in the operator's folder of layouts.
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

    def begun(self, checkpoint_id: int | None) -> list[KeyGroupRange]:
        """Return the key groups of the subtasks that have taken snapshots under the current layout.

        The current layout is the last one under which batches may have run. Only snapshots up to
        `checkpoint_id` count; None counts all.
        """
        numbers = [each.number for each in self.layouts if each.is_begun and not each.is_dropped]
        return [
            groups
            for (number, groups), record in self.records.items()
            if number in numbers[-1:] and record.first is not None
            if checkpoint_id is None or record.first <= checkpoint_id
        ]

    def base(self, oldest: int) -> StoredLayout | None:
        """Return the layout that was in force at the oldest retained checkpoint, `oldest`.

        Return None if it is unknown.
        """
        known = [
            each
            for each in self.layouts
            if each.is_begun and each.first_id is not None and each.first_id <= oldest
        ]
        return known[-1] if known else None

    def is_taken_over(self, base: StoredLayout, oldest: int) -> bool:
        """Return whether no subtask needs the sources of the layout `base` any longer.

        This is the case if every subtask has a committed checkpoint, up to `oldest`, under `base`.
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

        A folder that neither the base nor a later layout uses may hold files with the id of the
        base's first checkpoint. They belong to an attempt that was lost when the layout changed, so
        they are returned as well. If such a folder has newer files, a query that was not stopped
        still writes there. Then its files with the first id, or a newer one, are left out.
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

        While the base's sources are needed, the files of the layout just before the base are left
        out. They show that the base has sources.
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

    Return no files if the metadata of an attempt cannot be read that is as new as the subtask's
    oldest retained snapshot, because the files that this attempt needs are unknown.

    Args:
        storage: the storage of the files.
        folder: the subtask's folder.
        committed: the subtask's committed snapshot.
        first: the first checkpoint under the present layout; earlier files are ignored.
        oldest: the oldest retained checkpoint.
    """
    named = committed.all_paths
    # Spark's files, or another executor, may know a retained checkpoint by any of its attempts.
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
    """Return the files named by those attempts whose checkpoint id is at least `start`.

    If the metadata of one of these attempts cannot be read, return all files in `unnamed`.

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


_CONVERTER = snapshot_converter()


@attrs.frozen
class SubtaskRecord:
    """The recorded checkpoints of a subtask under one layout.

    Attributes:
        first: the checkpoint id of the first snapshot, even if that attempt was lost; None if
            unknown.
        committed: a checkpoint that Spark has committed under the layout; None if unknown.
    """

    first: int | None = None
    committed: int | None = None


@attrs.frozen
class OperatorSettings:
    """The settings of an operator's query at its last start.

    Attributes:
        retained: its ``checkpoint.retained``.
        checkpoint: the URI of its ``checkpointLocation``; empty if unknown, as over Spark Connect.
    """

    retained: int = attrs.field(validator=attrs.validators.ge(1))
    checkpoint: str = ""


def record_first(
    storage: CheckpointStorage,
    operator: OperatorId,
    number: int,
    groups: KeyGroupRange,
    checkpoint_id: int,
) -> None:
    """Record `checkpoint_id` as a subtask's first snapshot under the layout with this `number`."""
    record = json.dumps(attrs.asdict(SubtaskRecord(checkpoint_id)))
    write_sealed(storage, record_path(operator, number, groups), record)


def record_commit(
    storage: CheckpointStorage,
    operator: OperatorId,
    number: int,
    groups: KeyGroupRange,
    checkpoint_id: int,
) -> None:
    """Record `checkpoint_id` as a committed checkpoint of a subtask under a layout.

    Do nothing if a committed checkpoint is recorded already.
    """
    path = record_path(operator, number, groups)
    known = read_record(storage, path)
    if known.committed is None:
        record = attrs.evolve(known, committed=checkpoint_id)
        write_sealed(storage, path, json.dumps(attrs.asdict(record)))


def read_record(storage: CheckpointStorage, path: str) -> SubtaskRecord:
    """Return the record in the file `path`, or an empty record if the file cannot be read."""
    try:
        with decoding(path, "it is not a subtask's record"):
            return _CONVERTER.structure(parse_json(read_sealed(storage, path)), SubtaskRecord)
    except MillpondError:
        return SubtaskRecord()


def note_settings(
    storage: CheckpointStorage, operator: OperatorId, retained: int, checkpoint: str = ""
) -> None:
    """Write the settings of an operator's query if they differ from the stored ones.

    If `checkpoint` is empty, keep the stored URI.
    """
    known = read_settings(storage, operator)
    if not checkpoint and known is not None:
        checkpoint = known.checkpoint
    settings = OperatorSettings(retained, checkpoint)
    if settings != known:
        write_sealed(storage, settings_path(operator), json.dumps(attrs.asdict(settings)))


def read_settings(storage: CheckpointStorage, operator: OperatorId) -> OperatorSettings | None:
    """Return the stored settings of an operator's query, or None if they cannot be read."""
    path = settings_path(operator)
    try:
        with decoding(path, "it does not hold the settings of a query"):
            return _CONVERTER.structure(parse_json(read_sealed(storage, path)), OperatorSettings)
    except MillpondError:
        return None
