"""The operator state that a subtask starts from: its share of what others have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.backend.operator_state import FrozenState
from millpond.checkpoint.handles import KeyedStateHandle, OperatorStateHandle
from millpond.checkpoint.operator_state_snapshot import (
    read_operator_state,
    redistribute_operator_state,
    write_operator_state,
)
from millpond.checkpoint.savepoint.operator_tables import read_operator_states
from millpond.checkpoint.savepoint.savepoint_file import SavepointHandle, read_savepoint
from millpond.operator_id import OperatorId
from millpond.storage.memory import MemoryStorage

__all__ = ["frozen_operator_state", "operator_state_share"]


def operator_state_share(
    handles: Sequence[KeyedStateHandle | SavepointHandle],
    uid: str,
    subtask: int,
    parallelism: int,
) -> list[OperatorStateHandle]:
    """What one subtask restores of the operator state in some snapshots.

    Args:
        handles: the old subtasks' snapshots, in their order, or savepoints.
        uid: the operator, for savepoints.
        subtask: the new subtask, from 0.
        parallelism: how many new subtasks there are.

    Raises:
        CorruptSnapshotError, RestoreError: a savepoint cannot be read.
    """
    old: list[OperatorStateHandle | None] = []
    for handle in handles:
        if isinstance(handle, SavepointHandle):
            old += _of_savepoint(handle, uid)
        else:
            old += handle.operator_state or [None]
    return redistribute_operator_state(old, parallelism)[subtask] if any(old) else []


def _of_savepoint(handle: SavepointHandle, uid: str) -> list[OperatorStateHandle | None]:
    """A savepoint's operator state by subtask, put into memory for the handles to refer to."""
    operator = read_savepoint(handle).operator(OperatorId(uid=uid))
    if not operator.operator_states:
        return []
    saved, storage = OperatorId(uid=operator.uid), MemoryStorage.private()
    found: list[Any] = [
        write_operator_state(saved, handle.checkpoint_id, storage, states).result().handle
        for states in read_operator_states(handle, operator)
    ]
    return found


def frozen_operator_state(handle: KeyedStateHandle) -> list[FrozenState]:
    """The operator state in a subtask's snapshot, with its elements' bytes."""
    return list(read_operator_state(handle.operator_state).values())
