"""Measure sorted maps of growing size: writes, ranges of ten entries, and queues.

Each operation runs 500 times at random places, on a map whose entries are in the store and on one
whose entries are in the write buffer. Figures are medians of processor time over the rounds, in µs
per call.

Usage: sorted_maps.py [--rounds 5] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millpond as mp
from millpond_conformance.opening import open_at

SIZES = (1_000, 100_000)
BACKENDS = ("heap", "rocksdb", "lmdb")
CALLS = 500
ENTRIES = mp.SortedMapStateDescriptor("entries", int, int)

OPERATIONS: dict[str, Callable[[Any, int], Any]] = {
    "put": lambda state, at: state.put(at, at),
    "range": lambda state, at: list(state.range(at, limit=10)),
    "range_back": lambda state, at: list(state.range(None, at, reverse=True, limit=10)),
    "pop_first": lambda state, _: state.pop_first(),
}


def filled(backend: Any, key: str, size: int, *, stored: bool) -> Any:
    """Return a map with every second int, in the store or in the write buffer."""
    backend.set_current_key(key)
    state = backend.get_partitioned_state(ENTRIES)
    state.put_all(dict.fromkeys(range(0, 2 * size, 2), 0))
    if stored:
        backend.flush()
        backend.set_current_key(key)
    state.first()  # sorts the buffered keys
    return state


def took(operation: Callable[[Any, int], Any], state: Any, places: list[int]) -> float:
    """Return the processor time of a call, in µs."""
    started = time.process_time_ns()
    for place in places:
        operation(state, place)
    return (time.process_time_ns() - started) / 1000 / len(places)


def measure(name: str, size: int, rounds: int, *, stored: bool) -> dict[str, Any]:
    """Measure all operations on maps of one size."""
    chosen = random.Random(size)  # noqa: S311 - a benchmark
    times: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
    with tempfile.TemporaryDirectory() as directory, open_at(name, Path(directory)) as backend:
        for number in range(rounds):
            state = filled(backend, f"k{number}", size, stored=stored)
            for operation, run in OPERATIONS.items():
                places = [chosen.randrange(2 * size) for _ in range(CALLS)]
                times[operation].append(took(run, state, places))
    medians = {operation: statistics.median(each) for operation, each in times.items()}
    return {"size": size, "place": "store" if stored else "buffer", **medians}


def main() -> None:
    """Measure all backends; the heap has no store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    found = {
        name: [
            measure(name, size, given.rounds, stored=stored)
            for stored in ((False,) if name == "heap" else (True, False))
            for size in SIZES
        ]
        for name in BACKENDS
    }
    (given.output / "sorted_maps.json").write_text(json.dumps(found, indent=2))
    for name, reports in found.items():
        for report in reports:
            print(name, json.dumps(report))


if __name__ == "__main__":
    main()
