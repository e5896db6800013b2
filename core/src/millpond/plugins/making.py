"""How plugins make state objects: one makes the raw state, others wrap it."""

from __future__ import annotations

from typing import Any

import pluggy

from millpond.backend.keyed_states import KeyedStates
from millpond.backend.many_keys import StateKeys
from millpond.backend.state_context import StateContext
from millpond.backend.state_registry import RegisteredState
from millpond.state.interfaces import State, let_choose
from millpond.state.ttl.envelope import stamped_descriptor

__all__ = ["make_state"]


def make_state(hook: pluggy.HookRelay, backend: KeyedStates, registered: RegisteredState) -> State:
    """The state object over a table that the backend has made, wrapped, innermost first."""
    parameters, descriptor = backend.parameters, registered.descriptor
    state: State = hook.millpond_create_state(
        backend=backend,
        descriptor=stamped_descriptor(descriptor, parameters.clock),
        namespace_serializer=registered.namespace_codec,
    )
    keys = StateKeys(backend.current, descriptor)
    let_choose(state, keys)
    context = StateContext(backend, parameters.clock, parameters.config, backend.metrics)
    # A chain: each implementation gets the result of the one before. Pluggy has no such call.
    for implementation in reversed(hook.millpond_wrap_state.get_hookimpls()):
        values: dict[str, Any] = {"state": state, "descriptor": descriptor, "context": context}
        wrapped: Any = implementation.function(*(values[name] for name in implementation.argnames))
        if wrapped is not None:
            state = wrapped
            let_choose(state, keys)
    return state
