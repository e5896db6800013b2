"""The core's answer to ``millpond_create_state``: the raw states over the backend's tables."""

from __future__ import annotations

from millpond.backend.states.make_state import make_state
from millpond.spi.backend import KeyedStates
from millpond.spi.hooks import hookimpl
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.types import KeyCodec

MILLPOND_API = 1


@hookimpl(trylast=True)
def millpond_create_state(
    backend: KeyedStates, descriptor: StateDescriptor, namespace_serializer: KeyCodec
) -> State:
    """Make the state from the table that the backend has made for it."""
    return make_state(descriptor, namespace_serializer, backend.table_of(descriptor.name))
