"""States that count and time their calls."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millpond.config import StateConfig, TrackConfig
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import BETWEEN_LAYERS, MapState, State
from millpond.state.metrics.metric_registry import Histogram, MetricRegistry
from millpond.state.metrics.sizes import Sizer, StateSizes

ITERATIONS = ("items", "keys", "values")
"""The methods of a map state that begin an iteration."""

_END: Any = object()

Steps = Callable[[Iterator[Any]], Iterator[Any]]


def calls_so_far(sampled: int, interval: int, countdown: int) -> int:
    """Return the number of calls of which the first and then every n-th was sampled."""
    return max(0, sampled * interval - countdown + 1) if sampled else 0


def metered_steps(
    name: str,
    interval: int,
    registry: MetricRegistry,
    record: Callable[[int, Any, int], None],
    sizes: StateSizes | None,
) -> Steps:
    """Return a function that iterates, counts the steps, and records the first and every n-th.

    All iterations of a state by one method are counted together, including the steps that find the
    end.
    """
    countdown = 1
    rounds = 0

    def steps(entries: Iterator[Any]) -> Iterator[Any]:
        # Another key may be current when the steps are made.
        return walk(entries, 0 if sizes is None else sizes.key_bytes())

    def walk(entries: Iterator[Any], address: int) -> Iterator[Any]:
        nonlocal countdown, rounds
        while True:
            countdown -= 1
            if countdown:
                entry = next(entries, _END)
            else:
                countdown = interval
                rounds += 1
                start = time.perf_counter_ns()
                entry = next(entries, _END)
                record(time.perf_counter_ns() - start, entry, address)
            if entry is _END:
                return
            yield entry

    registry.count_calls(name, lambda: calls_so_far(rounds, interval, countdown))
    return steps


def step_recorder(
    name: str, way: str, registry: MetricRegistry, config: StateConfig, sizes: StateSizes | None
) -> Callable[[int, Any, int], None]:
    """Return a function that records the nanoseconds of a step and the sizes of its entry."""
    latency, history = config.latency_track, config.size_track.history_size

    def record(elapsed: int, entry: Any, address: int) -> None:
        if latency.enabled:
            registry.histogram(f"{name}_ns", latency.history_size).update(elapsed)
        if sizes is None or entry is _END:
            return
        key, value = entry if way == "items" else (entry, entry)
        if way != "values":
            size = address + sizes.map_key_bytes(key)
            registry.histogram(f"{name}_key_bytes", history).update(size)
        if way != "keys" and value is not None:
            registry.histogram(f"{name}_bytes", history).update(sizes.value_bytes(value) or 0)

    return record


_FORWARDED = frozenset({"set_current_namespace"})

Method = Callable[..., Any]


def _interface_of(state: State) -> type[State]:
    """Return the most specific public interface that the state implements."""
    return next(cls for cls in type(state).__mro__ if cls.__module__ == "millpond.state.interfaces")


def _operations(interface: type[State]) -> list[str]:
    """Return the methods to forward; the interface's special methods call them."""
    names = [name for name in dir(interface) if not name.startswith("_")]
    return [name for name in names if name not in BETWEEN_LAYERS]


def _sampled(
    name: str, method: Method, sample: Method, interval: int, registry: MetricRegistry
) -> Method:
    """Return a method that counts its calls, and samples the first and every n-th.

    A closure counts in 18 ns less than attributes of an instance.
    """
    countdown = 1
    rounds = 0

    def call(_: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal countdown, rounds
        countdown -= 1
        if countdown:
            return method(*arguments, **options)
        countdown = interval
        rounds += 1
        return sample(*arguments, **options)

    registry.count_calls(name, lambda: calls_so_far(rounds, interval, countdown))
    return call


def _forwarded(method: Method) -> Method:
    return lambda _, *arguments, **options: method(*arguments, **options)


def _sampling(
    method: Method,
    name: str,
    registry: MetricRegistry,
    latency: TrackConfig,
    sizers: Mapping[str, Sizer],
    history: int,
) -> Method:
    """Return a call that records its time and sizes in the histograms."""
    times: Histogram | None = None
    in_order = inspect.signature(method).bind

    def sample(*arguments: Any, **options: Any) -> Any:
        nonlocal times
        start = time.perf_counter_ns()
        result = method(*arguments, **options)
        elapsed = time.perf_counter_ns() - start
        if latency.enabled:
            if times is None:
                times = registry.histogram(f"{name}_ns", latency.history_size)
            times.update(elapsed)
        given = tuple(in_order(*arguments, **options).arguments.values()) if options else arguments
        for suffix, size_of in sizers.items():
            size = size_of(given, result)
            if size is not None:
                registry.histogram(f"{name}_{suffix}", history).update(size)
        return result

    return sample


def _sizers(operation: str, sizes: StateSizes | None) -> dict[str, Sizer]:
    """Return the measured sizes of an operation, by the suffix of the histogram's name."""
    if sizes is None:
        return {}
    found = {"bytes": sizes.of_values(operation), "key_bytes": sizes.of_keys(operation)}
    return {suffix: sizer for suffix, sizer in found.items() if sizer is not None}


def _iterating(begin: Method, steps: Steps) -> Method:
    """Return a method that begins an iteration and records its steps."""
    return lambda: steps(iter(begin()))


def wrap_with_metrics(state: State, descriptor: StateDescriptor, context: Any) -> State:
    """Return a state that counts its calls, and samples the first and every n-th of each method.

    Samples are nanoseconds under ``<state>.<method>_ns``. With size tracking, they are also the
    serialized bytes of the value under ``<state>.<method>_bytes``, and of its address under
    ``<state>.<method>_key_bytes``. For an iteration over a map, the first call and the steps have
    names of their own: ``<state>.items_init_ns``, ``<state>.items_next_ns``. If both latencies and
    sizes are tracked, the smaller interval applies.
    """
    config, registry = context.config.state, context.metrics
    latency, size = config.latency_track, config.size_track
    interval = min(track.sample_interval for track in (latency, size) if track.enabled)
    sizes = StateSizes(context.backend, descriptor) if size.enabled else None
    interface = _interface_of(state)
    operations = [name for name in _operations(interface) if name not in _FORWARDED]
    methods = {name: _forwarded(getattr(state, name)) for name in _FORWARDED}
    samples: dict[str, Method] = {}
    plain = {operation: getattr(state, operation) for operation in operations}
    for operation in operations:
        begins = issubclass(interface, MapState) and operation in ITERATIONS
        name = f"{descriptor.name}.{operation}{'_init' if begins else ''}"
        sizers = _sizers(operation, sizes)
        looked = _sampling(plain[operation], name, registry, latency, sizers, size.history_size)
        samples[operation] = looked
        if begins:
            step = f"{descriptor.name}.{operation}_next"
            record = step_recorder(step, operation, registry, config, sizes)
            steps = metered_steps(step, interval, registry, record, sizes)
            plain[operation] = _iterating(plain[operation], steps)
            samples[operation] = _iterating(looked, steps)
    for operation in operations:
        name, sample = f"{descriptor.name}.{operation}", samples[operation]
        methods[operation] = _sampled(name, plain[operation], sample, interval, registry)
    if sizes is not None:
        methods["set_current_namespace"] = sizes.following(methods["set_current_namespace"])
    # Methods of a class are called faster than functions in an instance. A class for each kind of
    # state would have to count in attributes of its instances, which ``_sampled`` avoids.
    wrapper = type(f"Metered{interface.__name__}", (interface,), {**methods, "wrapped": state})
    return wrapper()  # type: ignore[no-any-return]
