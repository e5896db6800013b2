"""State metrics as a built-in plugin: the outermost wrapper, made only if they are on."""

from __future__ import annotations

from millpond.spi.backend import StateContext
from millpond.spi.hooks import hookimpl
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.state.metrics.metered_states import wrap_with_metrics

MILLPOND_API = 1


@hookimpl(trylast=True)
def millpond_wrap_state(
    state: State, descriptor: StateDescriptor, context: StateContext
) -> State | None:
    """Wrap every state if the backend tracks latencies or sizes."""
    config = context.config.state
    if not config.latency_track.enabled and not config.size_track.enabled:
        return None
    return wrap_with_metrics(state, descriptor, context)
