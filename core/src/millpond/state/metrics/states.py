"""The metrics wrapper: the methods of a state counted, and every n-th call looked at."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from millpond.config import StateConfig, TrackConfig
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.interfaces import State, ValueState
from millpond.state.metrics.registry import Histogram, MetricRegistry
from millpond.state.metrics.values import calls_so_far, metered_value_methods

__all__ = ["wrap_with_metrics"]

_FORWARDED = frozenset({"set_current_namespace"})
_RETURNS_VALUE = frozenset({"value", "get"})
_TAKES_VALUE = frozenset({"update", "add", "put"})

Method = Callable[..., Any]


def _interface_of(state: State) -> type[State]:
    """The most specific public interface that the state implements."""
    return next(cls for cls in type(state).__mro__ if cls.__module__ == "millpond.state.interfaces")


def _operations(interface: type[State]) -> list[str]:
    """The methods to forward; dunder methods reach them through the interface's defaults."""
    return [name for name in dir(interface) if not name.startswith("_")]


def _sampled(
    name: str, method: Method, sample: Method, interval: int, registry: MetricRegistry
) -> Method:
    """A method of the same arity that counts, and calls ``sample`` at the first and each n-th.

    A function for each arity, since ``*arguments`` make a call slower.
    """
    countdown = 1
    rounds = 0

    def call_0(_: Any) -> Any:
        nonlocal countdown, rounds
        countdown -= 1
        if countdown:
            return method()
        countdown = interval
        rounds += 1
        return sample()

    def call_1(_: Any, argument: Any) -> Any:
        nonlocal countdown, rounds
        countdown -= 1
        if countdown:
            return method(argument)
        countdown = interval
        rounds += 1
        return sample(argument)

    def call_n(_: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal countdown, rounds
        countdown -= 1
        if countdown:
            return method(*arguments, **options)
        countdown = interval
        rounds += 1
        return sample(*arguments, **options)

    registry.count_calls(name, lambda: calls_so_far(rounds, interval, countdown))
    names = tuple(inspect.signature(method).parameters)
    if len(names) == 1:
        # The argument gets the method's own name, so that it can be given by name as well.
        call_1.__code__ = call_1.__code__.replace(co_varnames=("_", *names))
    by_arity: dict[int, Method] = {0: call_0, 1: call_1}
    return by_arity.get(len(names), call_n)


def _forwarded(method: Method) -> Method:
    return lambda _, *arguments, **options: method(*arguments, **options)


def _looked_at(
    method: Method,
    name: str,
    registry: MetricRegistry,
    latency: TrackConfig,
    size_of: Callable[[tuple[Any, ...], Any], int | None] | None,
    history: int,
) -> Method:
    """A call whose time and, where it has one, value's size go into the histograms."""
    times: Histogram | None = None
    sizes: Histogram | None = None

    def sample(*arguments: Any, **options: Any) -> Any:
        nonlocal times, sizes
        start = time.perf_counter_ns()
        result = method(*arguments, **options)
        elapsed = time.perf_counter_ns() - start
        if latency.enabled:
            if times is None:
                times = registry.histogram(f"{name}_ns", latency.history_size)
            times.update(elapsed)
        size = None if size_of is None else size_of((*arguments, *options.values()), result)
        if size is not None:
            if sizes is None:
                sizes = registry.histogram(f"{name}_bytes", history)
            sizes.update(size)
        return result

    return sample


def _sizer(
    operation: str, descriptor: StateDescriptor
) -> Callable[[tuple[Any, ...], Any], int | None] | None:
    """What tells the serialized bytes of the value that a call takes or returns."""
    if descriptor.kind in (StateKind.AGGREGATING, StateKind.FOLDING):
        return None
    serialize = descriptor.value_serializer().serialize

    def bytes_of(value: Any) -> int | None:
        if value is None:
            return None
        if descriptor.kind is StateKind.LIST and isinstance(value, list):
            return sum(len(serialize(element)) for element in value)
        return len(serialize(value))

    if operation in _RETURNS_VALUE:
        # A map's default is no value of its type.
        return lambda arguments, result: (
            None if _is_one_of(result, arguments[1:]) else bytes_of(result)
        )
    if operation in _TAKES_VALUE:
        return lambda arguments, _: bytes_of(arguments[-1])
    return None


def _is_one_of(value: Any, others: tuple[Any, ...]) -> bool:
    return any(value is other for other in others)


def wrap_with_metrics(
    state: State, descriptor: StateDescriptor, registry: MetricRegistry, config: StateConfig
) -> State:
    """The state with its calls counted, and the first and then every n-th looked at.

    Samples are nanoseconds under ``<state>.<method>_ns``, and where size tracking is on, the
    serialized bytes of the value under ``<state>.<method>_bytes``. Where both are on, the
    smaller of the two intervals counts.
    """
    latency, size = config.latency_track, config.size_track
    interval = min(track.sample_interval for track in (latency, size) if track.enabled)
    interface = _interface_of(state)
    operations = [name for name in _operations(interface) if name not in _FORWARDED]
    samples = {
        operation: _looked_at(
            getattr(state, operation),
            f"{descriptor.name}.{operation}",
            registry,
            latency,
            _sizer(operation, descriptor) if size.enabled else None,
            size.history_size,
        )
        for operation in operations
    }
    methods = {name: _forwarded(getattr(state, name)) for name in _FORWARDED}
    if isinstance(state, ValueState) and hasattr(state, "cells"):
        methods |= metered_value_methods(state, samples, interval, registry, descriptor.name)
    for operation in operations:
        if operation not in methods:
            name, method = f"{descriptor.name}.{operation}", getattr(state, operation)
            methods[operation] = _sampled(name, method, samples[operation], interval, registry)
    # A class of its own, whose functions the interpreter calls at once; it does not for functions
    # that an instance carries.
    wrapper = type(f"Metered{interface.__name__}", (interface,), {**methods, "wrapped": state})
    return wrapper()  # type: ignore[no-any-return]
