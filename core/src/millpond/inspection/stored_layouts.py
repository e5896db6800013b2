"""The layouts of a checkpoint directory, and temporary files of killed writers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from millpond.errors import MillpondError
from millpond.inspection.subtask import Subtask, reason_of
from millpond.keygroups import KeyGroupRange, key_group_range
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding, exact_bool, exact_int, exact_text, parse_json
from millpond.snapshots.bundle import CUT_OFF, read_sealed
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.paths import SnapshotPath, parse_layout_path
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import LocalStorage, begun_path


def temporary_files(paths: Iterable[str]) -> dict[str, tuple[OperatorId, int]]:
    """Those that a local writer has not renamed to a snapshot's file, with its checkpoint id."""
    begun = {path: SnapshotPath.parse(begun_path(path)) for path in paths}
    return {path: (of.operator, of.checkpoint_id) for path, of in begun.items() if of is not None}


def without_cut_off(
    subtasks: tuple[Subtask, ...], layouts: Mapping[str, frozenset[str]]
) -> tuple[Subtask, ...]:
    """The subtasks; of files without an end those count as broken that may have been committed.

    A storage without renames shows what a killed writer has written so far. A snapshot names all
    that the committed one before it has, as its own or as retired. So what no snapshot names,
    though the subtask has a newer one, is of an attempt that was lost; of anything else an end that
    is missing is damage.
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


_CUT_OFF = (
    "it is not written to its end: wait for the query's driver or, where that has died, delete it, "
    "for nothing has begun under it"
)
_BEGINNING = re.compile(rb'\{"sha256": "[0-9a-f]{64}", "content": "(?:[^"\\]|\\.)*\\?"?', re.DOTALL)
"""What there is of a sealed text until all of it is written, but for its first bytes alone."""
_FIRST = b'{"sha256": "%064d", "content": "' % 0


@attrs.frozen
class StoredLayout:
    """The parts of a layout's file that tools need.

    Attributes:
        number: counts from 0; the highest one is in force.
        sources: the snapshots from which its subtasks start.
        first_id: the first checkpoint that may be written under it; None if the file does not say.
        divisions: the key groups of each subtask; none if the operator was dropped.
        is_begun: whether batches may have run under it.
        is_dropped: whether it ends an operator that its query no longer has.
        savepoint: the URI of the savepoint from which its subtasks start; empty without one.
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
        """The files of its sources, and those that only older checkpoints need."""
        return frozenset[str]().union(*(source.all_paths for source in self.sources))


@attrs.define
class StoredLayouts:
    """The layouts of all operators.

    Attributes:
        readable: those of each operator that can be read, by ascending number.
        in_force: the files of each operator's newest layout, with the paths that its sources need.
        broken: newest layouts that cannot be read, with the reason.
        cut_off: those of them that no driver can have gone on from, for it has not written them
            to their end; the one before counts as in force, too.
        outdated: files that a driver has begun and not renamed, though that layout is there by now.
    """

    readable: dict[OperatorId, list[StoredLayout]] = attrs.field(factory=dict)
    in_force: dict[str, frozenset[str]] = attrs.field(factory=dict)
    broken: dict[str, str] = attrs.field(factory=dict)
    cut_off: set[str] = attrs.field(factory=set)
    outdated: list[str] = attrs.field(factory=list)


def read_layouts(storage: CheckpointStorage, paths: Iterable[str]) -> StoredLayouts:
    """The layouts among some files."""
    found = StoredLayouts()
    by_operator: dict[OperatorId, list[tuple[int, str]]] = {}
    begun = dict[str, tuple[OperatorId, int]]()
    for path in paths:
        if layout := parse_layout_path(path):
            by_operator.setdefault(layout[0], []).append((layout[1], path))
        elif layout := parse_layout_path(begun_path(path)):
            begun[path] = layout
    for operator, mine in by_operator.items():
        found.readable[operator] = [*_read(storage, mine, found)][::-1]
    newest = {operator: known[-1].number for operator, known in found.readable.items() if known}
    found.outdated += [
        path for path, (operator, number) in begun.items() if number <= newest.get(operator, -1)
    ]
    return found


def _read(
    storage: CheckpointStorage, layouts: Iterable[tuple[int, str]], found: StoredLayouts
) -> Iterator[StoredLayout]:
    """Read an operator's layouts, the newest first; skip older ones that cannot be read.

    A newest layout that cannot be read needs nothing that is known.
    """
    is_newest = True
    for number, path in sorted(layouts, reverse=True):
        try:
            layout = _stored_layout(storage, path, number)
        except MillpondError as error:
            if not is_newest:
                continue
            found.in_force[path] = frozenset()
            is_newest = _is_cut_off(storage, path)
            found.broken[path] = _CUT_OFF if is_newest else reason_of(error)
            if not is_newest:
                return
            found.cut_off.add(path)
        else:
            if is_newest:
                found.in_force[path] = layout.source_paths
            is_newest = False
            yield layout


def _stored_layout(storage: CheckpointStorage, path: str, number: int) -> StoredLayout:
    with decoding(path, "it is not a layout"):
        body: dict[str, Any] = parse_json(read_sealed(storage, path))
        settled, is_dropped = body.get("settled_after"), body.get("dropped_after") is not None
        return StoredLayout(
            number=number,
            sources=tuple(KeyedStateHandle.from_json(text, storage) for text in body["sources"]),
            first_id=None if settled is None else exact_int(settled, int) + 2,
            divisions=frozenset() if is_dropped else frozenset(_divisions(body)),
            is_begun=exact_bool(body.get("begun", True), bool),
            is_dropped=is_dropped,
            savepoint=exact_text(body.get("savepoint", ""), str),
        )


def _divisions(body: dict[str, Any]) -> Iterator[KeyGroupRange]:
    if "parallelism" in body:
        total, count = exact_int(body["max_parallelism"], int), exact_int(body["parallelism"], int)
        yield from (key_group_range(total, count, index) for index in range(count))


def _is_cut_off(storage: CheckpointStorage, path: str) -> bool:
    """Whether a driver cannot have written more of a layout; where files are renamed, it has."""
    if isinstance(storage, LocalStorage):
        return False
    try:
        found = storage.read_all(path)
        return _BEGINNING.fullmatch(found + _FIRST[len(found) :]) is not None
    except MillpondError:
        return False
