"""Metered iterations over map states: each step is a call of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from millpond.config import StateConfig
from millpond.state.metrics.metered_values import calls_so_far
from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.state.metrics.sizes import StateSizes

__all__ = ["ITERATIONS", "Steps", "metered_steps", "step_recorder"]

ITERATIONS = ("items", "keys", "values")
"""The methods of a map state that begin an iteration."""

_END: Any = object()

Steps = Callable[[Iterator[Any]], Iterator[Any]]


def metered_steps(
    name: str,
    interval: int,
    registry: MetricRegistry,
    record: Callable[[int, Any, int], None],
    sizes: StateSizes | None,
) -> Steps:
    """Goes through an iteration, whose first and every n-th step it has recorded.

    The steps of all iterations of a state in one way are counted together, the one that finds
    the end included.
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
    """What puts the nanoseconds of a step, and the sizes of its entry, into the histograms."""
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
