"""Operator state between a rescale and each subtask's first snapshot, as a directory shows it.

A snapshot that a newer one has taken key groups over from still counts for the others. What it
holds of raw keyed state goes with these, and broadcast state is anybody's. But whose its lists
are, only the query's layout and pointers say: some elements are in a newer snapshot by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.backend.operator_state import RAW_KEYED, Mode, StateId
from millpond.inspection.subtask import Subtask
from millpond.keygroups import key_group_range
from millpond.snapshots.handles import KeyedStateHandle

__all__ = ["undivided_states"]


def undivided_states(
    subtasks: Sequence[Subtask],
    parts: Sequence[KeyedStateHandle],
    checkpoint_id: int | None = None,
) -> frozenset[StateId]:
    """The lists of an operator of which nobody can tell which elements count.

    Args:
        subtasks: all of the operator.
        parts: what ``newest_parts`` gives of them.
        checkpoint_id: up to which.
    """
    newest = [known[-1] for each in subtasks if (known := each.at(checkpoint_id))]
    whole = [each for each in newest if each in parts]
    replaced = [each for each in newest if each not in whole]
    if not replaced:
        return frozenset()
    # Subtasks of before may divide the key groups with new ones: those that have run are newer.
    are_newer = min(each.checkpoint_id for each in parts) > max(h.checkpoint_id for h in replaced)
    if are_newer and len(whole) == len(parts) and _is_division(parts):
        return frozenset()
    since = [each for each in newest if each not in replaced and _follows(each, replaced)]
    earlier = (each for each in newest if each not in since)
    return frozenset(known for each in earlier for known in _lists_of(each))


def _is_division(parts: Sequence[KeyedStateHandle]) -> bool:
    """Whether the parts are all subtasks of one parallelism, so that each has run."""
    found = sorted(part.key_group_range.start for part in parts)
    total, count = parts[0].max_parallelism, len(parts)
    if sum(len(part.key_group_range) for part in parts) != total:
        return False
    return found == [key_group_range(total, count, index).start for index in range(count)]


def _follows(handle: KeyedStateHandle, replaced: Sequence[KeyedStateHandle]) -> bool:
    """Whether a snapshot is newer than others of some of its key groups."""
    groups, number = handle.key_group_range, handle.checkpoint_id
    return any(
        each.checkpoint_id < number and each.key_group_range.intersection(groups)
        for each in replaced
    )


def _lists_of(handle: KeyedStateHandle) -> Iterator[StateId]:
    """The split and union lists that are not empty, but for raw keyed state."""
    for share in handle.operator_state:
        for state in share.states:
            is_list = state.meta.mode is not Mode.BROADCAST and state.meta != RAW_KEYED
            if is_list and state.partitions:
                yield state.meta.id
