"""State: descriptors, state interfaces, and the built-in wrappers."""

from millpond.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from millpond.state.interfaces import (
    AggregatingState,
    AppendingState,
    FoldingState,
    ListState,
    MapState,
    MergingState,
    ReducingState,
    State,
    ValueState,
)
from millpond.state.ttl.ttl_config import (
    CleanupStrategies,
    StateTtlConfig,
    StateVisibility,
    TtlTimeCharacteristic,
    UpdateType,
)

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "CleanupStrategies",
    "FoldingState",
    "FoldingStateDescriptor",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateKind",
    "StateTtlConfig",
    "StateVisibility",
    "TtlTimeCharacteristic",
    "UpdateType",
    "ValueState",
    "ValueStateDescriptor",
]
