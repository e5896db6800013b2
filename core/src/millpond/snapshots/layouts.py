"""The layouts of a checkpoint directory, the records of subtasks, and the settings of queries.

A layout is a division of an operator's key groups among its subtasks. Spark's driver writes a new
layout, for example, if the parallelism changes. Spark's pointers show which subtasks have run under
a layout, but only Spark can read these pointers. Therefore each subtask writes a record, a small
file, when it takes its first snapshot under a layout. It writes the record again when Spark has
committed a snapshot under the layout. After that, the subtask never again restores a snapshot from
before the layout. If a record or the settings cannot be read, their contents count as unknown. See
``millpond.snapshots.retention`` for the use of records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs

from millpond.errors import MillpondError
from millpond.keygroups import KeyGroupRange, key_group_range
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding, exact_int, exact_text, parse_json
from millpond.snapshots.bundle import read_sealed, write_sealed
from millpond.snapshots.handles import KeyedStateHandle, snapshot_converter
from millpond.snapshots.paths import parse_layout_path, record_path, settings_path
from millpond.snapshots.subtasks import reason_of
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import begun_path


@attrs.frozen
class StoredLayout:
    """The data from a layout's file that tools need. Spark's driver writes the file.

    Attributes:
        number: the layout's number, counted from 0. The layout with the highest number is the
            current one.
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
        in_force: the path of each operator's newest layout file, with the paths of the snapshot
            files from which the layout's subtasks start.
        broken: files of newest layouts that cannot be read, each with the reason. The sources of
            these layouts are unknown.
        outdated: incomplete layout files that killed drivers have left. Files of layouts newer than
            the newest complete layout are not included.
    """

    readable: dict[OperatorId, list[StoredLayout]] = attrs.field(factory=dict)
    in_force: dict[str, frozenset[str]] = attrs.field(factory=dict)
    broken: dict[str, str] = attrs.field(factory=dict)
    outdated: list[str] = attrs.field(factory=list)


def read_layouts(storage: CheckpointStorage, paths: Iterable[str]) -> StoredLayouts:
    """Read the layout files among `paths`, the files of a checkpoint directory.

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


_CONVERTER = snapshot_converter()


@attrs.frozen
class SubtaskRecord:
    """The checkpoints of a subtask under one layout that its record names.

    Attributes:
        first: the checkpoint id of the subtask's first snapshot, even if Spark has not committed
            that snapshot; None if unknown.
        committed: a checkpoint that Spark has committed under the layout; None if unknown.
    """

    first: int | None = None
    committed: int | None = None


@attrs.frozen
class OperatorSettings:
    """The settings of an operator's query at its last start.

    Attributes:
        retained: the query's ``checkpoint.retained``.
        checkpoint: the URI of the query's ``checkpointLocation``; empty if unknown, as over Spark
            Connect.
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
