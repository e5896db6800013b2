"""Measure the cost of the wrappers: a read-modify-write of a value state with and without them.

All cases are open in one process and take turns, one pass over all keys each, in an order that
rotates with every round, since the machine's speed drifts. Several processes repeat this, since
two of them differ by more than the wrappers cost. A figure is the median of all rounds, a ratio
the median of each round's ratio to its two plain cases. The unit is processor time.

Usage: wrappers.py [--repeats 8] [--rounds 20] [--keys 4000] [--output out/bench]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from types import FunctionType
from typing import Any

import attrs
import matplotlib as mpl
import millpond as mp

mpl.use("agg")
import matplotlib.pyplot as plt

BACKENDS = ("heap", "rocksdb", "lmdb")
WARM_UP = 5
DAY = mp.StateTtlConfig(timedelta(days=1))
CASES: dict[str, tuple[mp.StateTtlConfig | None, dict[str, Any]]] = {
    "plain": (None, {}),
    "plain again": (None, {}),
    "TTL": (DAY, {}),
    "TTL by event time": (attrs.evolve(DAY, time=mp.TtlTime.EVENT_TIME), {}),
    "latency, every 100th": (None, {"state.latency-track.enabled": True}),
    "latency and size, every 100th": (
        None,
        {"state.latency-track.enabled": True, "state.size-track.enabled": True},
    ),
}


def opened(
    backend: str, folder: str, ttl: mp.StateTtlConfig | None, options: dict[str, Any]
) -> tuple[Any, Any]:
    """Open a backend and its state."""
    descriptor = mp.ValueStateDescriptor("total", int)
    if ttl is not None:
        descriptor.enable_time_to_live(ttl)
    made = mp.open_keyed_backend(
        backend,
        key_type=int,
        directory=folder,
        clock=mp.ManualClock(0),
        config=mp.Config(options),
    )
    return made, made.get_partitioned_state(descriptor)


def one_pass(opened: Any, state: Any, groups: list[int]) -> float:
    """Return the nanoseconds of one read-modify-write, including its share of a flush."""
    started = time.process_time_ns()
    for key, group in enumerate(groups):
        opened.current.select(key, group)
        state.update((state.value() or 0) + 1)
    opened.flush(None)
    return (time.process_time_ns() - started) / len(groups)


def own_copy(function: Any) -> Callable[..., float]:
    """Return the function with a code object of its own, since inline caches belong to the code.

    In a shared one the caches would see the states of all cases and help none.
    """
    return FunctionType(function.__code__.replace(), function.__globals__)


def measure(backend: str, keys: int, rounds: int) -> dict[str, list[float]]:
    """Return the samples of each case: all are open at once, and take turns pass by pass."""
    groups = [mp.assign_to_key_group(key, 128) for key in range(keys)]
    samples: dict[str, list[float]] = {name: [] for name in CASES}
    with ExitStack() as stack:
        cases: dict[str, Any] = {}
        for name, (ttl, options) in CASES.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            made, state = opened(backend, folder, ttl, options)
            stack.callback(made.close)
            cases[name] = (own_copy(one_pass), made, state)
        order = list(CASES)
        gc.disable()
        for number in range(rounds + WARM_UP):
            first = number % len(order)
            for name in order[first:] + order[:first]:
                run, made, state = cases[name]
                samples[name].append(run(made, state, groups))
            gc.collect()
    return {name: each[WARM_UP:] for name, each in samples.items()}


def measure_elsewhere(backend: str, keys: int, rounds: int) -> dict[str, list[float]]:
    """Return the samples of a fresh process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (backend, keys, rounds))


def main() -> None:
    """Measure, print a table, write JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--keys", type=int, default=4000)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    medians: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, float]] = {}
    for backend in BACKENDS:
        samples: dict[str, list[float]] = {name: [] for name in CASES}
        for _ in range(given.repeats):
            for name, more in measure_elsewhere(backend, given.keys, given.rounds).items():
                samples[name] += more
        medians[backend] = {name: statistics.median(each) for name, each in samples.items()}
        plain = [(a + b) / 2 for a, b in zip(samples["plain"], samples["plain again"], strict=True)]
        for name, median in medians[backend].items():
            each = [took / base for took, base in zip(samples[name], plain, strict=True)]
            ratios.setdefault(backend, {})[name] = statistics.median(each) - 1
            print(f"{backend:8} {name:30} {median:8.0f} ns {ratios[backend][name]:+7.1%}")
    (given.output / "wrappers.json").write_text(json.dumps({"ns": medians, "more": ratios}))
    figure, axis = plt.subplots(figsize=(8, 3.4))
    width = 0.8 / len(CASES)
    for at, name in enumerate(CASES):
        positions = [number + at * width for number in range(len(BACKENDS))]
        axis.bar(positions, [medians[b][name] / 1000 for b in BACKENDS], width, label=name)
    axis.set_xticks([number + 0.4 - width / 2 for number in range(len(BACKENDS))], BACKENDS)
    axis.set_ylabel("µs a read-modify-write")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(given.output / "wrappers.png", dpi=110)


if __name__ == "__main__":
    main()
