"""TTL as a built-in plugin: the innermost wrapper."""

from __future__ import annotations

from millpond.spi.backend import StateContext
from millpond.spi.hooks import hookimpl
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.state.ttl.ttl_states import wrap_with_ttl

MILLPOND_API = 1


@hookimpl(tryfirst=True)
def millpond_wrap_state(
    state: State, descriptor: StateDescriptor, context: StateContext
) -> State | None:
    """Wrap states whose descriptor has a TTL."""
    if descriptor.ttl_config is None:
        return None
    return wrap_with_ttl(state, descriptor.ttl_config, context.clock)
