"""Millpond: Flink's state model for PySpark, with pluggable state backends."""

from millpond import errors, local, testing, windows
from millpond.backend import Capability
from millpond.checkpoint import KeyedStateHandle, SavepointHandle
from millpond.checkpoint.handles import OperatorStateHandle
from millpond.checkpoint.operator_state_snapshot import redistribute_operator_state
from millpond.clock import ManualClock, SystemClock
from millpond.config import Config
from millpond.hookspecs import hookimpl
from millpond.keygroups import KeyGroupRange, default_max_parallelism, key_group_range
from millpond.runtime import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    BroadcastContext,
    CheckpointedFunction,
    Context,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListCheckpointed,
    QueryableStateClient,
    RuntimeContext,
    SnapshotContext,
    StateInitializationContext,
    TimeDomain,
    TimerService,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.runtime.public_functions import (
    assign_to_key_group,
    checkpoint_storage,
    rekey_savepoint,
    seal_savepoint,
)
from millpond.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CleanupStrategies,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    StateVisibility,
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

__version__ = "0.1.0"

__all__ = [
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "VOID_NAMESPACE",
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "BroadcastContext",
    "Capability",
    "CheckpointedFunction",
    "CleanupStrategies",
    "Compatibility",
    "Config",
    "Context",
    "FoldingStateDescriptor",
    "KeyGroupRange",
    "KeyedBroadcastProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateHandle",
    "ListCheckpointed",
    "ListStateDescriptor",
    "ManualClock",
    "MapStateDescriptor",
    "OperatorStateHandle",
    "Outcome",
    "PickleSerializer",
    "QueryableStateClient",
    "ReducingStateDescriptor",
    "RuntimeContext",
    "SavepointHandle",
    "SerializerSnapshot",
    "SnapshotContext",
    "StateDescriptor",
    "StateInitializationContext",
    "StateTtlConfig",
    "StateVisibility",
    "SystemClock",
    "TimeDomain",
    "TimerService",
    "TypeSerializer",
    "UpdateType",
    "ValueStateDescriptor",
    "__version__",
    "assign_to_key_group",
    "checkpoint_storage",
    "default_max_parallelism",
    "errors",
    "hookimpl",
    "key_group_range",
    "local",
    "open_keyed_backend",
    "open_operator_backend",
    "redistribute_operator_state",
    "rekey_savepoint",
    "renamed_from",
    "seal_savepoint",
    "testing",
    "windows",
]
