"""Millpond: Flink's state model for PySpark, with pluggable state backends."""

from importlib.metadata import version as _version

from millpond import errors, functions, keyed, local, patterns, testing, windows
from millpond.clock import ManualClock, SystemClock
from millpond.config import Config
from millpond.functions.async_functions import AsyncFunction, KeyedAsyncFunction
from millpond.functions.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    ListCheckpointed,
    SnapshotContext,
    StateInitializationContext,
)
from millpond.functions.dead_letters import DEAD_LETTERS, DeadLetter
from millpond.functions.functions import (
    BroadcastContext,
    BroadcastProcessFunction,
    Context,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessContext,
    ProcessFunction,
    RuntimeContext,
)
from millpond.functions.joins import LATE_LEFT, LATE_RIGHT, AsOfJoin, IntervalJoin, LookupJoin
from millpond.functions.side_outputs import OutputTag
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, TimerService
from millpond.functions.vectorized import VectorizedContext, VectorizedProcessFunction
from millpond.keyed import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
    RichFilterFunction,
    RichFlatMapFunction,
    RichMapFunction,
    RichReduceFunction,
)
from millpond.keygroups import KeyGroupRange, default_max_parallelism, key_group_range
from millpond.local.queryable import QueryableStateClient
from millpond.local.savepoint_writer import SavepointWriter
from millpond.operator.bootstrap import KeyedStateBootstrapFunction
from millpond.operator.opening import (
    assign_to_key_group,
    checkpoint_storage,
    open_keyed_backend,
    open_operator_backend,
    rekey_savepoint,
    seal_savepoint,
)
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.snapshots.redistribution import redistribute_operator_state
from millpond.spi import Capability
from millpond.spi.hooks import hookimpl
from millpond.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CleanupStrategies,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    SortedMapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    StateVisibility,
    TtlTime,
    UpdateType,
    ValueStateDescriptor,
)
from millpond.types import (
    VOID_NAMESPACE,
    Compatibility,
    Outcome,
    PickleSerializer,
    SerializerSnapshot,
    TypeSerializer,
    renamed_from,
)

__version__ = _version("millpond")

__all__ = [
    "DEAD_LETTERS",
    "LATE_LEFT",
    "LATE_RIGHT",
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "VOID_NAMESPACE",
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "AsOfJoin",
    "AsyncFunction",
    "BroadcastContext",
    "BroadcastProcessFunction",
    "Capability",
    "CheckpointListener",
    "CheckpointedFunction",
    "CleanupStrategies",
    "Compatibility",
    "Config",
    "Context",
    "DeadLetter",
    "FilterFunction",
    "FlatMapFunction",
    "FoldingStateDescriptor",
    "IntervalJoin",
    "KeyGroupRange",
    "KeyedAsyncFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateBootstrapFunction",
    "KeyedStateHandle",
    "ListCheckpointed",
    "ListStateDescriptor",
    "LookupJoin",
    "ManualClock",
    "MapFunction",
    "MapStateDescriptor",
    "OperatorStateHandle",
    "Outcome",
    "OutputTag",
    "PickleSerializer",
    "ProcessContext",
    "ProcessFunction",
    "QueryableStateClient",
    "ReduceFunction",
    "ReducingStateDescriptor",
    "RichFilterFunction",
    "RichFlatMapFunction",
    "RichMapFunction",
    "RichReduceFunction",
    "RuntimeContext",
    "SavepointHandle",
    "SavepointWriter",
    "SerializerSnapshot",
    "SnapshotContext",
    "SortedMapStateDescriptor",
    "StateDescriptor",
    "StateInitializationContext",
    "StateTtlConfig",
    "StateVisibility",
    "SystemClock",
    "TimeDomain",
    "TimerService",
    "TtlTime",
    "TypeSerializer",
    "UpdateType",
    "ValueStateDescriptor",
    "VectorizedContext",
    "VectorizedProcessFunction",
    "__version__",
    "assign_to_key_group",
    "checkpoint_storage",
    "default_max_parallelism",
    "errors",
    "functions",
    "hookimpl",
    "key_group_range",
    "keyed",
    "local",
    "open_keyed_backend",
    "open_operator_backend",
    "patterns",
    "redistribute_operator_state",
    "rekey_savepoint",
    "renamed_from",
    "seal_savepoint",
    "testing",
    "windows",
]
