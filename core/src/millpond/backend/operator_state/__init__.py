"""Operator state: lists and maps of a subtask, not of a key; always in memory.

When the parallelism changes, a split list is divided among the new subtasks. Every subtask gets
all elements of a union list. A broadcast map is the same in every subtask. Values are stored as
objects and copied on their way in and out, as keyed state is.
"""

from millpond.backend.operator_state.operator_state_backend import (
    OperatorStateBackend,
    SnapshotWriter,
)
from millpond.backend.operator_state.operator_states import (
    RAW_KEYED,
    RAW_KEYED_STREAM,
    BroadcastState,
    FrozenState,
    Mode,
    OperatorStateMeta,
    RestoredState,
    StateId,
    key_group_of,
)

__all__ = [
    "RAW_KEYED",
    "RAW_KEYED_STREAM",
    "BroadcastState",
    "FrozenState",
    "Mode",
    "OperatorStateBackend",
    "OperatorStateMeta",
    "RestoredState",
    "SnapshotWriter",
    "StateId",
    "key_group_of",
]
