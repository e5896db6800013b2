"""What killed writers have left: local files of other names, and remote ones cut off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from millpond.inspection.subtask import Subtask
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import CUT_OFF
from millpond.snapshots.paths import SnapshotPath
from millpond.storage.local_directory import begun_path

__all__ = ["temporary_files", "without_cut_off"]


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
