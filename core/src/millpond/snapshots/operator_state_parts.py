"""The operator state that each subtask has left, where some have not run since a rescale.

One that has run has a snapshot of its own. Of one that has not, there is its share of what the
subtasks of before have left: parts of their snapshots, which several such shares have in common.
Taken together, each element counts once, and bytes of a key group come from its owner alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from millpond.backend.operator_state import RAW_KEYED, FrozenState, Mode, StateId, key_group_of
from millpond.config import RestoreConfig
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, StoredOperatorState
from millpond.snapshots.operator_state_snapshot import read_operator_state, read_partitions

__all__ = ["frozen_operator_states", "operator_state_parts"]


def operator_state_parts(
    handles: Iterable[KeyedStateHandle], limits: RestoreConfig
) -> list[list[OperatorStateHandle]]:
    """The operator state of each subtask, in the order of their key groups.

    Elements that the shares of several subtasks have in common, as those of union lists are, are
    the first one's. Of raw keyed state a subtask has what belongs to its key groups.

    Args:
        handles: what the subtasks have left, in any order: of each its snapshot, or the parts of
            others' that are its own by now.
        limits: how large a file may be.

    Returns:
        A list for each subtask, empty where it has no operator state.

    Raises:
        CorruptSnapshotError: a file with raw keyed state is damaged, missing or foreign, or beyond
            the limits.
    """
    subtasks = _subtasks(list(handles))
    holders = Counter(source for each in subtasks for source in _sources_of(each))
    counted = {source: set[int]() for source, count in holders.items() if count > 1}
    return [
        [
            _counted_once(_owned(part, handle.key_group_range, limits), counted)
            for part in handle.operator_state
        ]
        for handle in subtasks
    ]


def frozen_operator_states(
    handles: Iterable[KeyedStateHandle], limits: RestoreConfig
) -> list[list[FrozenState]]:
    """The same with the elements' bytes."""
    parts = operator_state_parts(handles, limits)
    return [list(read_operator_state(each, limits).values()) for each in parts]


def _subtasks(handles: Sequence[KeyedStateHandle]) -> list[KeyedStateHandle]:
    """One handle for each subtask: beside a share of operator state there are parts without any."""
    having = [handle for handle in handles if handle.operator_state]
    known = {group for handle in having for group in handle.key_group_range}
    others = [
        handle
        for handle in handles
        if not handle.operator_state and handle.key_group_range.start not in known
    ]
    return sorted([*having, *others], key=lambda handle: handle.key_group_range.start)


def _owned(
    part: OperatorStateHandle, groups: KeyGroupRange, limits: RestoreConfig
) -> OperatorStateHandle:
    """A part without the raw keyed state of other subtasks, which has been given to all."""

    def owned(state: StoredOperatorState) -> StoredOperatorState:
        if state.meta != RAW_KEYED or not state.partitions:
            return state
        data = read_partitions(attrs.evolve(part, states=(state,)), limits)
        mine = (number for number in state.partitions if key_group_of(data[number]) in groups)
        return attrs.evolve(state, partitions=tuple(mine))

    return attrs.evolve(part, states=tuple(map(owned, part.states)))


_Source = tuple[str, int, StateId]
"""What tells a state of one snapshot from all others: its file, where that begins, and its name."""


def _source(part: OperatorStateHandle, state: StoredOperatorState) -> _Source | None:
    """Return the source of a list's elements; None for a broadcast state, or without elements."""
    if part.raw is None or state.meta.mode is Mode.BROADCAST:
        return None
    return part.raw.stream.path, part.raw.stream.offset, state.meta.id


def _sources_of(handle: KeyedStateHandle) -> set[_Source]:
    """Of all lists that a subtask has."""
    found = (_source(part, state) for part in handle.operator_state for state in part.states)
    return {source for source in found if source is not None}


def _counted_once(
    part: OperatorStateHandle, counted: Mapping[_Source, set[int]]
) -> OperatorStateHandle:
    """A part without the elements of the subtasks before, to which its own are added.

    Args:
        part: a part of one subtask.
        counted: the numbers of the elements that were met so far of what several subtasks have.
    """

    def once(state: StoredOperatorState) -> StoredOperatorState:
        source = _source(part, state)
        if source is None or source not in counted:
            return state
        met = counted[source]
        numbers = tuple(number for number in state.partitions if number not in met)
        met.update(numbers)
        return attrs.evolve(state, partitions=numbers)

    return attrs.evolve(part, states=tuple(map(once, part.states)))
