"""Operator state: lists and maps of a subtask, not of a key; always in memory.

A split list is cut anew when the parallelism changes, of a union list every subtask gets all,
a broadcast map is the same in every subtask. Values are stored as they are and copied on their
way in and out, as keyed state is.
"""

from millpond.backend.operator_state.frozen_state import (
    FrozenState,
    Mode,
    OperatorStateMeta,
    RestoredState,
)
from millpond.backend.operator_state.kinds import BroadcastState
from millpond.backend.operator_state.operator_state_backend import (
    OperatorStateBackend,
    SnapshotWriter,
)

__all__ = [
    "BroadcastState",
    "FrozenState",
    "Mode",
    "OperatorStateBackend",
    "OperatorStateMeta",
    "RestoredState",
    "SnapshotWriter",
]
