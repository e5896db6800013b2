"""Metered value states over the core's own cells: the hot path of the most used state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.state.value_over_cells import ValueOverCells


def metered_value_methods(
    raw: ValueOverCells,
    samples: Mapping[str, Callable[..., Any]],
    interval: int,
    registry: MetricRegistry,
    state_name: str,
) -> dict[str, Callable[..., Any]]:
    """The methods of a wrapper that do the raw state's work themselves.

    Closures over the table's methods, so counting adds no call: see ``benchmarks/wrappers.py``.
    What is rare, a missing value or one that has to be checked or copied, is left to it.
    """
    get, put, prepared = raw.cells.get, raw.cells.put, raw.namespace
    immutable, trusted = raw.value_serializer.immutable, raw.value_serializer.trusted_type
    reads_left = writes_left = 1
    sampled_reads = sampled_writes = 0

    def value(_: Any) -> Any:
        nonlocal reads_left, sampled_reads
        reads_left -= 1
        if not reads_left:
            reads_left = interval
            sampled_reads += 1
            return samples["value"]()
        stored = get(prepared)
        return raw.value() if stored is None or not immutable else stored

    def update(_: Any, value: Any) -> None:
        nonlocal writes_left, sampled_writes
        writes_left -= 1
        if not writes_left:
            writes_left = interval
            sampled_writes += 1
            samples["update"](value)
        elif type(value) is trusted:
            put(prepared, value)
        else:
            raw.update(value)

    def set_current_namespace(_: Any, namespace: Any) -> None:
        nonlocal prepared
        raw.set_current_namespace(namespace)
        prepared = raw.namespace

    registry.count_calls(
        f"{state_name}.value", lambda: calls_so_far(sampled_reads, interval, reads_left)
    )
    registry.count_calls(
        f"{state_name}.update", lambda: calls_so_far(sampled_writes, interval, writes_left)
    )
    return {"value": value, "update": update, "set_current_namespace": set_current_namespace}


def calls_so_far(sampled: int, interval: int, countdown: int) -> int:
    """How many calls there were, of which the first and then every n-th was sampled."""
    return max(0, sampled * interval - countdown + 1) if sampled else 0
