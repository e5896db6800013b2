"""The division of operator state among another number of subtasks, by Flink's rules."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from millpond.arguments import check_type, check_within, checked
from millpond.backend.operator_state import Mode
from millpond.keygroups import MAX_KEY_GROUPS
from millpond.snapshots.handles import OperatorStateHandle, StoredOperatorState


@checked
def redistribute_operator_state(
    handles_by_subtask: Sequence[OperatorStateHandle | None], new_parallelism: int
) -> list[list[OperatorStateHandle]]:
    """Divide operator state among another number of subtasks, by Flink's rules.

    Args:
        handles_by_subtask: the handle of each old subtask; None if the subtask had no state.
        new_parallelism: the number of new subtasks.

    Returns:
        A list of handles for each new subtask. If the parallelism does not change, every subtask
        keeps its split lists. Otherwise the elements of each split list, in the order of the old
        subtasks, are cut into consecutive chunks. If a list cannot be divided evenly, the first
        chunks have one element more; the subtask with the first chunk rotates from list to list.
        Union lists go to all subtasks. New subtask *i* gets the broadcast maps of old subtask
        ``i % old``.

    Raises:
        ArgumentTypeError, ArgumentValueError: an argument cannot be used.
    """
    for handle in handles_by_subtask:
        check_type("handles_by_subtask", handle, OperatorStateHandle | None)
    given = [[] if handle is None else [handle] for handle in handles_by_subtask]
    return redistributed(given, new_parallelism)


def redistributed(
    parts_by_subtask: Sequence[Sequence[OperatorStateHandle]], new_parallelism: int
) -> list[list[OperatorStateHandle]]:
    """Divide operator state like `redistribute_operator_state`.

    Each old subtask may have several handles, or none.
    """
    check_within("new_parallelism", new_parallelism, 1, MAX_KEY_GROUPS)
    owners = [at for at, parts in enumerate(parts_by_subtask) for _ in parts]
    handles = [handle for parts in parts_by_subtask for handle in parts]
    kept = len(parts_by_subtask) == new_parallelism
    chosen: list[dict[int, list[StoredOperatorState]]] = [{} for _ in range(new_parallelism)]
    first = 0
    for known in sorted({state.meta.id for handle in handles for state in handle.states}):
        stored = [
            (at, state)
            for at, handle in enumerate(handles)
            for state in handle.states
            if state.meta.id == known
        ]
        shares, first = _shares(stored, new_parallelism, first, owners if kept else None)
        for subtask, share in enumerate(shares):
            for at, state in share:
                chosen[subtask].setdefault(at, []).append(state)
    return [
        [attrs.evolve(handles[at], states=tuple(states)) for at, states in sorted(mine.items())]
        for mine in chosen
    ]


_Share = list[tuple[int, StoredOperatorState]]
"""Parts of one state, each with the index of the handle that holds it."""


def _shares(
    stored: _Share, parallelism: int, first: int, owners: Sequence[int] | None
) -> tuple[list[_Share], int]:
    """Divide one state among the new subtasks.

    Return the share of each new subtask, and the index of the new subtask that gets the first chunk
    of the next state.

    Args:
        stored: all parts of the state.
        parallelism: the number of new subtasks.
        first: the index of the new subtask that gets the first chunk of this state.
        owners: the old subtask of each handle if the number of subtasks does not change, else None.
            If the number does not change, each subtask keeps its split lists and broadcast maps.
    """
    mode = stored[0][1].meta.mode
    if mode is Mode.UNION:
        return [stored] * parallelism, first
    mine: list[_Share] = [[] for _ in range(parallelism)]
    if owners is not None:
        for part in stored:
            mine[owners[part[0]]].append(part)
    if mode is Mode.BROADCAST:
        copies = [stored[index % len(stored)] for index in range(parallelism)]
        return [own[:1] or [copy] for own, copy in zip(mine, copies, strict=True)], first
    return (mine, first) if owners is not None else _split(stored, parallelism, first)


def _split(stored: _Share, parallelism: int, first: int) -> tuple[list[_Share], int]:
    """Cut a split list into consecutive chunks, one for each new subtask.

    Return the chunk of each subtask, and the subtask that gets the first chunk of the next list.
    """
    elements = [(at, number) for at, state in stored for number in state.partitions]
    meta = stored[0][1].meta
    size, rest = divmod(len(elements), parallelism)
    shares: list[_Share] = [[] for _ in range(parallelism)]
    start = 0
    for turn in range(parallelism):
        end = start + size + (turn < rest)
        chunk: dict[int, list[int]] = {}
        for at, number in elements[start:end]:
            chunk.setdefault(at, []).append(number)
        shares[(first + turn) % parallelism] = [
            (at, StoredOperatorState(meta, tuple(numbers))) for at, numbers in chunk.items()
        ]
        start = end
    return shares, (first + rest) % parallelism
