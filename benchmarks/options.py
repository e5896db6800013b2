"""Measure what the options of an operator cost per row: dead letters, idleness, calls, sizes.

A running total per key, in local runs without Spark: the cases of a backend take turns within one
process, in an order that rotates with every round. Figures are medians of processor time in µs per
row. The sizes of states are measured apart, in µs per batch, after all rows.

Usage: options.py [--rounds 9] [--rows 20000] [--output out/bench]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import millpond as mp
from turns import rotated
from typing_extensions import override

BACKENDS = ("heap", "rocksdb", "lmdb")
KEYS, WARM_UP = 4_000, 2


class Total(mp.KeyedProcessFunction):
    """Yield the total of a key per row."""

    @override
    def open(self, context: Any) -> None:
        """Register the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", int))

    @override
    def process_element(self, row: Any, context: Any) -> Iterable[Any]:
        """Add the amount."""
        total = (self.total.value() or 0) + row["amount"]
        self.total.update(total)
        yield row["key"], total


class Failing(Total):
    """Fail at one of 100 rows, after the change of the state."""

    @override
    def process_element(self, row: Any, context: Any) -> Iterable[Any]:
        """Add the amount."""
        yield from super().process_element(row, context)
        if row["number"] % 100 == 0:
            raise ValueError(row["number"])


async def answer(value: int) -> int:
    """Return the value after one step of the event loop."""
    await asyncio.sleep(0)
    return value


class Calling(mp.KeyedAsyncFunction):
    """The running total with one call per row, which has its result at once."""

    capacity = 100

    @override
    def open(self, context: Any) -> None:
        """Register the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", int))

    @override
    def process_element(self, row: Any, context: Any) -> Any:
        """Add the amount that the call returns."""
        amount = yield answer(row["amount"])
        total = (self.total.value() or 0) + amount
        self.total.update(total)
        yield row["key"], total


BY_TIME = {"event_time": "time", "watermark_delay": 0}
CASES: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "plain": (Total, {}),
    "on_error, no error": (Total, {"on_error": "side_output"}),
    "on_error, 1 % errors": (Failing, {"on_error": "side_output"}),
    "event time": (Total, BY_TIME),
    "event time, idle_timeout": (Total, {**BY_TIME, "idle_timeout": 60_000}),
    "event time, null_event_times": (Total, {**BY_TIME, "null_event_times": "side_output"}),
    "one call": (Calling, {}),
}


def took(backend: str, case: str, rows: list[Any]) -> float:
    """Return the processor time of a row, in µs."""
    function, options = CASES[case]
    gc.collect()
    started = time.process_time_ns()
    mp.local.run(function(), rows, key="key", backend=backend, **options)
    return (time.process_time_ns() - started) / 1000 / len(rows)


def sizes_took(backend: str, rows: list[Any], rounds: int) -> float:
    """Return the processor time of reading the sizes of the states once, in µs."""
    with mp.testing.KeyedOperatorHarness(Total(), key="key", key_type=int, backend=backend) as made:
        for row in rows:
            made.process(row, row["time"])
        made.snapshot()
        times = []
        for _ in range(rounds):
            started = time.process_time_ns()
            made._backend.state_sizes()  # noqa: SLF001 - what the end of a batch calls
            times.append((time.process_time_ns() - started) / 1000)
    return statistics.median(times)


def measure(backend: str, rows: list[Any], rounds: int) -> dict[str, float]:
    """Return the figures of a backend, by case."""
    samples: dict[str, list[float]] = {case: [] for case in CASES}
    for number in range(rounds + WARM_UP):
        for case in rotated(list(CASES), number):
            samples[case].append(took(backend, case, rows))
    medians = {case: statistics.median(each[WARM_UP:]) for case, each in samples.items()}
    return {**medians, "sizes, per batch": sizes_took(backend, rows, rounds)}


def main() -> None:
    """Measure all backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    rows = [
        {"key": 7919 * number % KEYS, "amount": number % 9, "time": number, "number": number}
        for number in range(given.rows)
    ]
    found = {backend: measure(backend, rows, given.rounds) for backend in BACKENDS}
    (given.output / "options.json").write_text(json.dumps(found, indent=2))
    for backend, report in found.items():
        for case, figure in report.items():
            print(f"{backend:8} {case:30} {figure:10.2f} µs")


if __name__ == "__main__":
    main()
