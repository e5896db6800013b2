"""Put the core's wrappers around every state that a clause requests."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import attrs
import millpond as mp
from millpond.backend import KeyedStateBackend
from millpond.config import TrackConfig

WRAPPERS = ("none", "ttl", "metrics", "both")
"""The possible wrappers around every state: a TTL longer than every test, metrics of every call."""

_FOR_EVER = mp.StateTtlConfig(timedelta(days=365_000))


def config_for(wrapped: str, config: mp.Config) -> mp.Config:
    """Return the configuration; with metrics, it measures every call of every state."""
    if wrapped not in ("metrics", "both"):
        return config
    every = TrackConfig(enabled=True, sample_interval=1)
    evolve: Any = attrs.evolve  # mypy 2.4 fails on it for a class with an __init__ of its own
    state = evolve(config.state, latency_track=every, size_track=every)
    changed: mp.Config = evolve(config, state=state)
    return changed


def wrap(wrapped: str, backend: KeyedStateBackend) -> KeyedStateBackend:
    """Wrap the backend; with TTL, states without one get a TTL too long to expire.

    States that cannot have a TTL, those with a default value and queryable ones, are left alone.
    """
    if wrapped not in ("ttl", "both"):
        return backend
    plain: Any = backend.get_partitioned_state

    def get(descriptor: Any, *arguments: Any, **options: Any) -> Any:
        free = descriptor.ttl_config is None and descriptor.query_name is None
        if free and getattr(descriptor, "default", None) is None:
            descriptor = copy.copy(descriptor).enable_time_to_live(_FOR_EVER)
        return plain(descriptor, *arguments, **options)

    setattr(backend, "get_partitioned_state", get)  # noqa: B010 - mypy refuses to assign a method
    return backend
