"""Functions, contexts, timers, one subtask's life, and how backends are opened."""

from millpond.runtime.bootstrap import KeyedStateBootstrapFunction
from millpond.runtime.broadcast import BroadcastContext, KeyedBroadcastProcessFunction
from millpond.runtime.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    ListCheckpointed,
    SnapshotContext,
    StateInitializationContext,
)
from millpond.runtime.co_process import KeyedCoProcessFunction
from millpond.runtime.functions import (
    Context,
    KeyedFunction,
    KeyedProcessFunction,
    OperatorFunction,
    ProcessContext,
    RuntimeContext,
)
from millpond.runtime.keyed_operator import KeyedOperator, SubtaskInfo
from millpond.runtime.metric_group import Counter, Distribution, MetricGroup
from millpond.runtime.opening import (
    open_batch_backend,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.runtime.operators import operator_of
from millpond.runtime.process_function import BroadcastProcessFunction, ProcessFunction
from millpond.runtime.queryable import QueryableStateClient
from millpond.runtime.side_outputs import Output, OutputTag
from millpond.runtime.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, TimerService
from millpond.runtime.vectorized import VectorizedContext, VectorizedProcessFunction
from millpond.runtime.vectorized_operator import VectorizedOperator

__all__ = [
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "BroadcastContext",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "Context",
    "Counter",
    "Distribution",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedFunction",
    "KeyedOperator",
    "KeyedProcessFunction",
    "KeyedStateBootstrapFunction",
    "ListCheckpointed",
    "MetricGroup",
    "OperatorFunction",
    "Output",
    "OutputTag",
    "ProcessContext",
    "ProcessFunction",
    "QueryableStateClient",
    "RuntimeContext",
    "SnapshotContext",
    "StateInitializationContext",
    "SubtaskInfo",
    "TimeDomain",
    "TimerService",
    "VectorizedContext",
    "VectorizedOperator",
    "VectorizedProcessFunction",
    "open_batch_backend",
    "open_keyed_backend",
    "open_operator_backend",
    "operator_of",
]
