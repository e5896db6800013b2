"""The operator state that each subtask has left, where some have not run since a rescale.

One that has run has a snapshot of its own. Of one that has not, there is its share of what the
subtasks of before have left: parts of their snapshots, which several such shares have in common.
Taken together, each element counts once, and bytes of a key group come from its owner alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from millpond.backend.operator_state import RAW_KEYED, FrozenState, Mode, key_group_of
from millpond.checkpoint.handles import (
    KeyedStateHandle,
    OperatorStateHandle,
    StoredOperatorState,
)
from millpond.checkpoint.operator_state_snapshot import read_operator_state, read_partitions
from millpond.keygroups import KeyGroupRange

__all__ = ["frozen_operator_states", "operator_state_parts"]


def operator_state_parts(
    handles: Iterable[KeyedStateHandle],
) -> list[list[OperatorStateHandle]]:
    """The operator state of each subtask, in the order of their key groups.

    Elements that the shares of several subtasks have in common, as those of union lists are, are
    the first one's. Of raw keyed state a subtask has what belongs to its key groups.

    Args:
        handles: what the subtasks have left, in any order: of each its snapshot, or the parts of
            others' that are its own by now.

    Returns:
        A list for each subtask, empty where it has no operator state.

    Raises:
        CorruptSnapshotError: a file with raw keyed state is damaged, missing or foreign.
    """
    counted: Counter[_Element] = Counter()
    found = []
    for handle in _subtasks(list(handles)):
        mine: Counter[_Element] = Counter()
        owned = [_owned(part, handle.key_group_range) for part in handle.operator_state]
        found.append([_counted_once(part, counted, mine) for part in owned])
        for element, count in mine.items():
            counted[element] = max(counted[element], count)
    return found


def frozen_operator_states(handles: Iterable[KeyedStateHandle]) -> list[list[FrozenState]]:
    """The same with the elements' bytes."""
    parts = operator_state_parts(handles)
    return [list(read_operator_state(each).values()) for each in parts]


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


def _owned(part: OperatorStateHandle, groups: KeyGroupRange) -> OperatorStateHandle:
    """A part without the raw keyed state of other subtasks, which has been given to all."""

    def owned(state: StoredOperatorState) -> StoredOperatorState:
        if state.meta != RAW_KEYED or not state.partitions:
            return state
        data = read_partitions(attrs.evolve(part, states=(state,)))
        mine = (number for number in state.partitions if key_group_of(data[number]) in groups)
        return attrs.evolve(state, partitions=tuple(mine))

    return attrs.evolve(part, states=tuple(map(owned, part.states)))


_Element = tuple[object, ...]
"""What tells an element from all others: its file, or the snapshot, state and number."""


def _counted_once(
    part: OperatorStateHandle, counted: Counter[_Element], mine: Counter[_Element]
) -> OperatorStateHandle:
    """A part without what the subtasks before have already; ``mine`` takes all that it has.

    Elements without bytes have no file, so that two of one snapshot's number may look alike: a
    subtask has as many of these as its share says.
    """
    stream = None if part.raw is None else part.raw.stream
    file = None if stream is None else (stream.path, stream.offset, stream.digest)

    def is_new(state: StoredOperatorState, number: int) -> bool:
        element = (part.checkpoint_id, file, state.meta.id, number)
        mine[element] += 1
        return mine[element] > counted[element]

    def once(state: StoredOperatorState) -> StoredOperatorState:
        if state.meta.mode is Mode.BROADCAST:
            return state
        numbers = tuple(number for number in state.partitions if is_new(state, number))
        return attrs.evolve(state, partitions=numbers)

    return attrs.evolve(part, states=tuple(map(once, part.states)))
