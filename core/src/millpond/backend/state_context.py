"""The context that wrappers of states receive."""

from __future__ import annotations

import attrs

from millpond.backend.keyed_states import KeyedStates
from millpond.clock import Clock
from millpond.config import Config
from millpond.state.metrics.metric_registry import MetricRegistry


@attrs.frozen
class StateContext:
    """What a state wrapper may use."""

    backend: KeyedStates
    clock: Clock
    config: Config
    metrics: MetricRegistry
