"""Which raw state serves which kind, and how one is made over a table."""

from __future__ import annotations

from typing import Any

from millpond.backend.states.appending_states import (
    RawAggregatingState,
    RawFoldingState,
    RawListState,
    RawReducingState,
)
from millpond.backend.states.map_state import RawMapState
from millpond.backend.states.value_state import RawValueState
from millpond.spi.tables import CellTable, MapTable
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.interfaces import State
from millpond.types import VOID_NAMESPACE, KeyCodec

_STATES: dict[StateKind, Any] = {
    StateKind.VALUE: RawValueState,
    StateKind.LIST: RawListState,
    StateKind.MAP: RawMapState,
    StateKind.REDUCING: RawReducingState,
    StateKind.AGGREGATING: RawAggregatingState,
    StateKind.FOLDING: RawFoldingState,
}


def make_state(
    descriptor: StateDescriptor, namespace_codec: KeyCodec, table: CellTable | MapTable
) -> State:
    """Make the raw state of a descriptor over a table."""
    state: State = _STATES[descriptor.kind](descriptor, namespace_codec, table)
    if namespace_codec.snapshot().id == "void":
        state.set_current_namespace(VOID_NAMESPACE)
    return state
