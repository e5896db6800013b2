"""A wrapper of states that counts calls, and samples latencies and serialized sizes.

Of the calls of each method, the first one and then every n-th one is sampled.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from millpond.config import StateConfig
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.interfaces import BETWEEN_LAYERS, MapState, State
from millpond.state.metrics.metric_registry import Histogram, MetricRegistry
from millpond.types import VOID_NAMESPACE

ITERATIONS = ("items", "keys", "values", "range")
"""The methods of a map state that return an iterator."""

_RETURNS_ENTRY = frozenset({"first", "last", "pop_first"})
_RETURNS_VALUE = frozenset({"value", "get"})
_TAKES_VALUE = frozenset({"update", "add", "put", "add_all"})
_TAKES_MAP_KEY = frozenset({"get", "put", "remove", "contains"})
_TOUCHES_KEY = _RETURNS_VALUE | _TAKES_VALUE | _TAKES_MAP_KEY | {"is_empty"}
_ACCUMULATORS = frozenset({StateKind.AGGREGATING, StateKind.FOLDING})
_END: Any = object()

Method = Callable[..., Any]
Steps = Callable[[Iterator[Any]], Iterator[Any]]
"""A function that returns an iterator over the same entries and records its steps."""
Sizer = Callable[[tuple[Any, ...], Any], int | None]
"""A function that takes a call's arguments and result, and returns a size in bytes.

It returns None if there is nothing to measure.
"""


def wrap_with_metrics(state: State, descriptor: StateDescriptor, context: Any) -> State:
    """Return a wrapper of `state` that counts all calls and samples some of them.

    The latency of a sample is recorded in nanoseconds as ``<state>.<method>_ns``. If sizes are
    tracked, the serialized bytes of the value are recorded as ``<state>.<method>_bytes``, and those
    of the key, namespace and map key as ``<state>.<method>_key_bytes``.

    An iteration over a map has two latencies: ``<state>.items_init_ns`` for the call that begins
    the iteration, and ``<state>.items_next_ns`` for each step. If both latencies and sizes are
    tracked, the smaller of the two sample intervals applies.
    """
    config, registry = context.config.state, context.metrics
    latency, size = config.latency_track, config.size_track
    interval = min(track.sample_interval for track in (latency, size) if track.enabled)
    sizes = _StateSizes(context.backend, descriptor) if size.enabled else None
    interfaces = (c for c in type(state).__mro__ if c.__module__ == State.__module__)
    interface = next(interfaces)  # the most specific interface

    def set_current_namespace(_: Any, namespace: Any) -> None:
        state.set_current_namespace(namespace)
        if sizes is not None:
            sizes.namespace = namespace

    methods: dict[str, Any] = {"wrapped": state, "set_current_namespace": set_current_namespace}
    # The special methods of the interface, such as __getitem__, call these methods.
    operations = {name for name in dir(interface) if not name.startswith("_")}
    for operation in sorted(operations - BETWEEN_LAYERS - {"set_current_namespace"}):
        method, name = getattr(state, operation), f"{descriptor.name}.{operation}"
        sizers = {} if sizes is None else sizes.sizers(operation)
        if issubclass(interface, MapState) and operation in ITERATIONS:
            sample = _sampling(method, f"{name}_init", registry, config, sizers)
            steps = _metered_steps(name, operation, interval, registry, config, sizes)
            method, sample = _iterating(method, steps), _iterating(sample, steps)
        else:
            sample = _sampling(method, name, registry, config, sizers)
        methods[operation] = _sampled(_sampler(name, interval, registry), method, sample)
    # Each state gets its own class, because methods are faster than functions in an instance.
    return type(f"Metered{interface.__name__}", (interface,), methods)()  # type: ignore[no-any-return]


def _sampler(name: str, interval: int, registry: MetricRegistry) -> Callable[[], bool]:
    """Return a function that is called once for each operation, and says whether to sample it."""
    countdown = 1
    rounds = 0

    def is_sampled() -> bool:
        nonlocal countdown, rounds
        countdown -= 1
        if countdown:
            return False
        countdown = interval
        rounds += 1
        return True

    registry.count_calls(name, lambda: rounds * interval - countdown + 1 if rounds else 0)
    return is_sampled


def _sampled(is_sampled: Callable[[], bool], method: Method, sample: Method) -> Method:
    """Return a method that calls `sample` if the call is to be sampled, else `method`."""

    def call(_: Any, *arguments: Any, **options: Any) -> Any:
        return (sample if is_sampled() else method)(*arguments, **options)

    return call


def _sampling(
    method: Method,
    name: str,
    registry: MetricRegistry,
    config: StateConfig,
    sizers: Mapping[str, Sizer],
) -> Method:
    """Return a function that calls `method` and records its latency and sizes.

    Args:
        method: the method of the wrapped state.
        name: the beginning of the histograms' names.
        registry: the histograms.
        config: the configuration of latency and size tracking.
        sizers: the functions that measure a call, by the end of the histogram's name.
    """
    times: Histogram | None = None
    latency, history = config.latency_track, config.size_track.history_size
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


def _iterating(begin: Method, steps: Steps) -> Method:
    """Return a function that calls `begin` to get an iterator, and records the iterator's steps."""
    return lambda *arguments, **options: steps(iter(begin(*arguments, **options)))


def _metered_steps(
    name: str,
    way: str,
    interval: int,
    registry: MetricRegistry,
    config: StateConfig,
    sizes: _StateSizes | None,
) -> Steps:
    """Return a function that wraps an iterator, counts its steps, and samples some of them.

    All iterations of one state that were begun by the same method are counted together. The step
    that finds the end counts too.

    Args:
        name: the beginning of the histograms' names.
        way: the method that begins the iterations, one of ``ITERATIONS``.
        interval: the number of steps from one sample to the next.
        registry: the histograms.
        config: the configuration of latency and size tracking.
        sizes: measures keys and values; None if sizes are not tracked.
    """
    is_sampled = _sampler(f"{name}_next", interval, registry)
    latency, history = config.latency_track, config.size_track.history_size

    def record(elapsed: int, entry: Any, address: int) -> None:
        if latency.enabled:
            registry.histogram(f"{name}_next_ns", latency.history_size).update(elapsed)
        if sizes is None or entry is _END:
            return
        key, value = entry if way in ("items", "range") else (entry, entry)
        if way != "values":
            size = address + sizes.map_key_bytes(key)
            registry.histogram(f"{name}_next_key_bytes", history).update(size)
        if way != "keys" and value is not None:
            registry.histogram(f"{name}_next_bytes", history).update(sizes.value_bytes(value) or 0)

    def walk(entries: Iterator[Any], address: int) -> Iterator[Any]:
        while True:
            start = time.perf_counter_ns() if is_sampled() else None
            entry = next(entries, _END)
            if start is not None:
                record(time.perf_counter_ns() - start, entry, address)
            if entry is _END:
                return
            yield entry

    # The key is measured now, because another key may be the current key during the steps.
    return lambda entries: walk(entries, 0 if sizes is None else sizes.key_bytes())


class _StateSizes:
    """Measures the serialized sizes of the keys and values of one state.

    The size of a key includes the namespace and the map key. The size of an accumulator is that of
    the stored bytes, including the timestamp if the state has a TTL.

    Attributes:
        namespace: the current namespace of the state.
    """

    def __init__(self, backend: Any, descriptor: StateDescriptor) -> None:
        self._backend = backend
        self._name, self._kind = descriptor.name, descriptor.kind
        self._map_keys = descriptor.map_key_codec()
        self._serializer = descriptor.value_serializer()
        self.namespace: Any = VOID_NAMESPACE

    def sizers(self, operation: str) -> dict[str, Sizer]:
        """Return the functions that measure calls of `operation`, by the histogram's suffix."""
        found: dict[str, Sizer] = {}
        if operation in _RETURNS_ENTRY:
            found["key_bytes"] = lambda _, entry: (
                None if entry is None else self.key_bytes() + self.map_key_bytes(entry[0])
            )
            found["bytes"] = lambda _, entry: None if entry is None else self.value_bytes(entry[1])
            return found
        if self._kind is StateKind.MAP and operation in _TAKES_MAP_KEY:
            found["key_bytes"] = lambda given, _: self.key_bytes() + self.map_key_bytes(given[0])
        elif operation in _TOUCHES_KEY:
            found["key_bytes"] = lambda _, __: self.key_bytes()
        if self._kind in _ACCUMULATORS:
            if operation in ("get", "add"):
                found["bytes"] = lambda _, __: self._stored_bytes()
        elif operation in _RETURNS_VALUE:
            # The default that a map returns may be of another type than its values.
            found["bytes"] = lambda given, result: (
                None if any(result is each for each in given[1:]) else self.value_bytes(result)
            )
        elif operation == "add":
            found["bytes"] = lambda given, _: self._one(given[0])
        elif operation in _TAKES_VALUE:
            at = 1 if operation == "put" else 0
            found["bytes"] = lambda given, _: self.value_bytes(given[at])
        return found

    def key_bytes(self) -> int:
        """Return the size in bytes of the current key and the current namespace."""
        _, key = self._backend.current.encoded()
        codec = self._backend.states.known(self._name).namespace_codec
        return len(key) + len(codec.encode(codec.check(self.namespace)))

    def map_key_bytes(self, map_key: Any) -> int:
        """Return the size in bytes of a map key."""
        assert self._map_keys is not None
        return len(self._map_keys.encode(self._map_keys.check(map_key)))

    def value_bytes(self, value: Any) -> int | None:
        """Return the size in bytes of a value or of all elements of a list; None for None."""
        if value is None:
            return None
        if self._kind is not StateKind.LIST:
            return self._one(value)
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return sum(map(self._one, value))
        return None

    def _one(self, value: Any) -> int:
        return len(self._serializer.serialize(self._serializer.check(value)))

    def _stored_bytes(self) -> int | None:
        """Return the size in bytes of the accumulator that is stored for the current key."""
        registered = self._backend.states.known(self._name)
        codec, table = registered.namespace_codec, self._backend.table_of(self._name)
        stored = table.get(table.prepare_namespace(codec.check(self.namespace)))
        return None if stored is None else len(registered.serializer.serialize(stored))
