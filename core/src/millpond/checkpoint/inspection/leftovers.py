"""What killed writers have left of snapshots: a local file of another name, or a remote one cut off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millpond.checkpoint.bundle import CUT_OFF
from millpond.checkpoint.inspection.subtask import Subtask
from millpond.checkpoint.paths import SnapshotPath
from millpond.operator_id import OperatorId
from millpond.storage.local_directory import begun_path

__all__ = ["cut_off_files", "temporary_files"]


def temporary_files(paths: Iterable[str]) -> dict[str, tuple[OperatorId, int]]:
    """Those that a local writer has not renamed to a snapshot's file, with its checkpoint id."""
    begun = {path: SnapshotPath.parse(begun_path(path)) for path in paths}
    return {path: (of.operator, of.checkpoint_id) for path, of in begun.items() if of is not None}


def cut_off_files(subtasks: Sequence[Subtask], layouts: Mapping[str, frozenset[str]]) -> set[str]:
    """Snapshots without an end that were never committed, as a storage without renames may hold.

    A snapshot names all that the committed one before it has, as its own or as retired. So what no
    snapshot names, though the subtask has a newer one, is of an attempt that was lost; of anything
    else an end that is missing is damage.
    """
    found = {
        path
        for each in subtasks
        for path, reason in each.broken.items()
        if reason == CUT_OFF and any(h.checkpoint_id > each.files[path] for h in each.handles)
    }
    if found:
        every = (h for each in subtasks for h in (*each.handles, *each.outlived))
        found -= frozenset[str]().union(*layouts.values(), *(h.all_paths for h in every))
    return found
