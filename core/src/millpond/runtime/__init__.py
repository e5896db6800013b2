"""Functions, contexts, timers, one subtask's life, and how backends are opened."""

from millpond.runtime.broadcast import BroadcastContext, KeyedBroadcastProcessFunction
from millpond.runtime.checkpointed import (
    CheckpointedFunction,
    ListCheckpointed,
    SnapshotContext,
    StateInitializationContext,
)
from millpond.runtime.functions import Context, KeyedProcessFunction, RuntimeContext
from millpond.runtime.keyed_operator import KeyedOperator, SubtaskInfo
from millpond.runtime.opening import (
    open_batch_backend,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.runtime.queryable import QueryableStateClient
from millpond.runtime.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, TimerService

__all__ = [
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "BroadcastContext",
    "CheckpointedFunction",
    "Context",
    "KeyedBroadcastProcessFunction",
    "KeyedOperator",
    "KeyedProcessFunction",
    "ListCheckpointed",
    "QueryableStateClient",
    "RuntimeContext",
    "SnapshotContext",
    "StateInitializationContext",
    "SubtaskInfo",
    "TimeDomain",
    "TimerService",
    "open_batch_backend",
    "open_keyed_backend",
    "open_operator_backend",
]
