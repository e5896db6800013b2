"""The latency wrapper: the public methods of a state, every n-th call timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from millpond.config import TrackConfig
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.state.metrics.registry import MetricRegistry

__all__ = ["wrap_with_latency"]

_UNTIMED = frozenset({"set_current_namespace"})


def _interface_of(state: State) -> type[State]:
    """The most specific public interface that the state implements."""
    return next(cls for cls in type(state).__mro__ if cls.__module__ == "millpond.state.interfaces")


def _operations(interface: type[State]) -> list[str]:
    """The methods to forward; dunder methods reach them through the interface's defaults."""
    return [name for name in dir(interface) if not name.startswith("_")]


@cache
def _wrapper_class(interface: type[State]) -> type[Any]:
    def forward(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any, **options: Any) -> Any:
            return self._timed[name](*arguments, **options)

        return method

    methods = {name: forward(name) for name in _operations(interface)}
    return type(f"Latency{interface.__name__}", (interface,), methods)


def _timed(
    method: Callable[..., Any], registry: MetricRegistry, name: str, track: TrackConfig
) -> Callable[..., Any]:
    countdown = 1
    interval = track.sample_interval

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal countdown
        countdown -= 1
        if countdown:
            return method(*arguments, **options)
        countdown = interval
        start = time.perf_counter_ns()
        try:
            return method(*arguments, **options)
        finally:
            elapsed = time.perf_counter_ns() - start
            registry.histogram(name, track.history_size).update(elapsed)

    return call


def wrap_with_latency(
    state: State, descriptor: StateDescriptor, registry: MetricRegistry, track: TrackConfig
) -> State:
    """The state with its first and then every ``sample_interval``-th call timed, per method.

    Samples are nanoseconds, under the name ``<state>.<method>_ns``.
    """
    interface = _interface_of(state)
    wrapper: Any = _wrapper_class(interface)()
    wrapper._timed = {  # noqa: SLF001 - the class was made above, for this
        name: getattr(state, name)
        if name in _UNTIMED
        else _timed(getattr(state, name), registry, f"{descriptor.name}.{name}_ns", track)
        for name in _operations(interface)
    }
    wrapper.wrapped = state
    return wrapper  # type: ignore[no-any-return]
