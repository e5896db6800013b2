"""The operator state that a subtask starts from: its share of what others have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.config import RestoreConfig
from millpond.operator_id import OperatorId
from millpond.savepoints.operator_tables import read_operator_states
from millpond.savepoints.savepoint_file import SavepointHandle, read_savepoint
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle
from millpond.snapshots.operator_state import (
    operator_state_parts,
    redistributed,
    write_operator_state,
)
from millpond.storage.memory import MemoryStorage


def operator_state_share(
    handles: Sequence[KeyedStateHandle | SavepointHandle],
    uid: str,
    subtask: int,
    parallelism: int,
    limits: RestoreConfig,
) -> list[OperatorStateHandle]:
    """What one subtask restores of the operator state in some snapshots.

    Args:
        handles: what the old subtasks have left, or savepoints.
        uid: the operator, for savepoints.
        subtask: the new subtask, from 0.
        parallelism: how many new subtasks there are.
        limits: what snapshots and savepoints may ask for.

    Raises:
        CorruptSnapshotError, RestoreError: a snapshot or savepoint cannot be read.
    """
    snapshots = (each for each in handles if isinstance(each, KeyedStateHandle))
    old = operator_state_parts(snapshots, limits)
    for handle in handles:
        if isinstance(handle, SavepointHandle):
            old += _of_savepoint(handle, uid, limits)
    return redistributed(old, parallelism)[subtask] if any(old) else []


def _of_savepoint(
    handle: SavepointHandle, uid: str, limits: RestoreConfig
) -> list[list[OperatorStateHandle]]:
    """A savepoint's operator state by subtask, put into memory for the handles to refer to."""
    operator = read_savepoint(handle).operator(OperatorId(uid=uid))
    if not operator.operator_states:
        return []
    saved, storage = OperatorId(uid=operator.uid), MemoryStorage.private()
    found: list[Any] = [
        write_operator_state(saved, handle.checkpoint_id, storage, states).result().handle
        for states in read_operator_states(handle, operator, limits)
    ]
    return [[] if each is None else [each] for each in found]
