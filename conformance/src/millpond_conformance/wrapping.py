"""Put wrappers of the core, for TTL and metrics, around every state that a clause requests."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import attrs
import millpond as mp
from millpond.backend import KeyedStateBackend
from millpond.config import TrackConfig

WRAPPERS = ("none", "ttl", "metrics", "both")
"""The choices of wrappers: none, a TTL longer than any test, metrics of every call, or both."""

_FOR_EVER = mp.StateTtlConfig(timedelta(days=365_000))


def config_for(wrapped: str, config: mp.Config) -> mp.Config:
    """Return a configuration for a backend with the wrappers that `wrapped` names.

    With metrics it is a copy of `config` that measures every call. Otherwise it is `config`.
    """
    if wrapped not in ("metrics", "both"):
        return config
    every = TrackConfig(enabled=True, sample_interval=1)
    evolve: Any = attrs.evolve  # mypy 2.4 fails on it for a class with an __init__ of its own
    state = evolve(config.state, latency_track=every, size_track=every)
    changed: mp.Config = evolve(config, state=state)
    return changed


def wrap(wrapped: str, backend: KeyedStateBackend) -> KeyedStateBackend:
    """Return `backend`. If `wrapped` is ``ttl`` or ``both``, change it to give each state a TTL.

    The TTL is longer than any test. If a state already has a TTL, it keeps this TTL. States with a
    default value and queryable states cannot have a TTL, so they are not changed.
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
