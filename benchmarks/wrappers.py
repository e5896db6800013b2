"""What the wrappers cost: a read-modify-write of a value state with and without them.

The cases take turns in rounds, since the machine's speed drifts. A figure is the median of all
rounds, a ratio the median of the rounds' own ratios to their two plain cases. Processor time is
measured.

Usage: wrappers.py [--rounds 9] [--keys 20000] [--output out/bench]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import matplotlib as mpl
import millpond as mp

mpl.use("agg")
import matplotlib.pyplot as plt

BACKENDS = ("heap", "rocksdb", "lmdb")
PASSES = 3
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "plain": (False, {}),
    "plain again": (False, {}),
    "TTL": (True, {}),
    "latency, every 100th": (False, {"state.latency-track.enabled": True}),
    "latency and size, every 100th": (
        False,
        {"state.latency-track.enabled": True, "state.size-track.enabled": True},
    ),
}


def run(backend: str, keys: int, *, ttl: bool, options: dict[str, Any]) -> float:
    """Nanoseconds of one read-modify-write, its share of a flush included."""
    descriptor = mp.ValueStateDescriptor("total", int)
    if ttl:
        descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(days=1)))
    with (
        tempfile.TemporaryDirectory() as folder,
        mp.open_keyed_backend(
            backend,
            key_type=int,
            directory=folder,
            clock=mp.ManualClock(0),
            config=mp.Config(options),
        ) as opened,
    ):
        state = opened.get_partitioned_state(descriptor)
        groups = [mp.assign_to_key_group(key, 128) for key in range(keys)]
        gc.collect()
        gc.disable()
        started = time.process_time_ns()
        for _ in range(PASSES):
            for key, group in enumerate(groups):
                opened.set_current_key_and_group(key, group)
                state.update((state.value() or 0) + 1)
            opened.flush(None)
        elapsed = time.process_time_ns() - started
        gc.enable()
        return elapsed / (PASSES * keys)


def main() -> None:
    """Measure, print a table, write JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    medians: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, float]] = {}
    for backend in BACKENDS:
        samples: dict[str, list[float]] = {name: [] for name in CASES}
        for _ in range(given.rounds):
            for name, (ttl, options) in CASES.items():
                samples[name].append(run(backend, given.keys, ttl=ttl, options=options))
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
