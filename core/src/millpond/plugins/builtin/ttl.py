"""TTL as a built-in plugin: the innermost wrapper."""

from __future__ import annotations

from typing import Any

from millpond.hookspecs import hookimpl
from millpond.state.descriptors import StateDescriptor
from millpond.state.ttl.ttl_states import wrap_with_ttl

MILLPOND_API = 1


@hookimpl(tryfirst=True)
def millpond_wrap_state(state: Any, descriptor: StateDescriptor, context: Any) -> Any:
    """Wrap states whose descriptor has a TTL."""
    if descriptor.ttl_config is None:
        return None
    return wrap_with_ttl(state, descriptor.ttl_config, context.clock)
