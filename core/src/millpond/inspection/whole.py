"""Which checkpoints of an operator are whole.

A subtask that has rows deletes its old snapshots by itself, and one that is idle keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millpond.inspection.subtask import Subtask
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.paths import SnapshotPath

__all__ = ["as_text", "covered_groups", "gone_groups", "newest_id", "whole_checkpoints"]


def covered_groups(subtasks: Sequence[Subtask], checkpoint_id: int) -> dict[int, int]:
    """The key groups that snapshots up to an id hold, each with the id of the newest."""
    covered: dict[int, int] = {}
    for subtask in subtasks:
        for handle in subtask.at(checkpoint_id)[-1:]:
            for group in subtask.key_group_range:
                covered[group] = max(handle.checkpoint_id, covered.get(group, -1))
    return covered


def gone_groups(
    subtasks: Sequence[Subtask], checkpoint_id: int, covered: Mapping[int, int]
) -> set[int]:
    """The key groups whose snapshot of then is deleted, or may be.

    Their first newer snapshot comes after another one that is not there, or that is newer than
    the id too; what was before that, nothing says. One that comes after none is the first: until
    then no row had come. Where pointers may carry snapshots, nothing says that either. A snapshot
    of then that newer ones have outlived is as good as deleted.

    Args:
        subtasks: all of the operator.
        checkpoint_id: the checkpoint.
        covered: as ``covered_groups`` has them.
    """
    gone: set[int] = set()
    following: dict[int, tuple[int, int]] = {}  # the id of the first newer snapshot, and before it
    for subtask in map(Subtask.with_outlived, subtasks):
        for handle in subtask.at(checkpoint_id)[-1:]:
            number = handle.checkpoint_id
            gone |= {g for g in subtask.key_group_range if covered.get(g, -1) < number}
        newer = next((h for h in subtask.handles if h.checkpoint_id > checkpoint_id), None)
        if newer is None:
            continue
        before = _ids_before(newer)
        for group in subtask.key_group_range:
            if group not in following or newer.checkpoint_id < following[group][0]:
                ids = [number for groups, number in before.items() if group in groups]
                following[group] = (newer.checkpoint_id, max(ids, default=-1))
    return gone | {g for g, (_, last) in following.items() if last > covered.get(g, -1)}


def _ids_before(handle: KeyedStateHandle) -> dict[KeyGroupRange, int]:
    """The newest ids of the files that a snapshot has replaced, or goes on from, by key groups."""
    found = {handle.key_group_range: 0} if handle.carries else {}
    for file in filter(None, map(SnapshotPath.parse, handle.all_paths)):
        if file.checkpoint_id < handle.checkpoint_id:
            known = found.get(file.key_group_range, -1)
            found[file.key_group_range] = max(known, file.checkpoint_id)
    return found


def whole_checkpoints(subtasks: Sequence[Subtask], last: int | None = None) -> list[range]:
    """The ids at which nothing of an operator is deleted.

    Args:
        subtasks: all of the operator.
        last: the last id that counts, as what is newer is not committed yet; that of the newest
            snapshot by default.
    """
    last = newest_id(subtasks) if last is None else last
    every = [handle for each in subtasks for handle in (*each.handles, *each.outlived)]
    ids = sorted({h.checkpoint_id for h in every if h.checkpoint_id <= last})
    ends = [*ids[1:], last + 1]
    found: list[range] = []
    for first, end in zip(ids, ends, strict=False):  # none comes or goes within
        if gone_groups(subtasks, first, covered_groups(subtasks, first)):
            continue
        if found and found[-1].stop == first:
            first = found.pop().start  # noqa: PLW2901 - one run
        found.append(range(first, end))
    return found


def newest_id(subtasks: Iterable[Subtask]) -> int:
    """Of the newest snapshot; 0 without any."""
    return max((h.checkpoint_id for each in subtasks for h in each.handles), default=0)


def as_text(runs: Sequence[range], offset: int = 0) -> str:
    """Numbers in words: ``1 to 1, 4 to 6``; ``none`` without any."""
    return ", ".join(f"{run[0] + offset} to {run[-1] + offset}" for run in runs) or "none"
