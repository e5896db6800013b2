"""Measure what the options of an operator cost per row: dead letters, idleness, calls, sizes.

A running total per key, in the operator that Spark's workers run, but without Spark. The cases of a
backend take turns within one process, in an order that rotates with every round. Figures are
medians of processor time in µs per row, including the calls of the backend. The sizes of states are
measured apart, in µs per batch, after all rows.

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
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import millpond as mp
from millpond.backend import KeyedStateBackend
from millpond.functions.dead_letters import DEFAULT_FAULTS, RowFaults
from millpond.functions.functions import SubtaskInfo
from millpond.functions.idleness import Idleness
from millpond.local.local_runner import open_local_operator
from millpond.operator.opening import StartingPoint
from millpond.operator.operators import KeyedOperator
from turns import rotated
from typing_extensions import override

BACKENDS = ("heap", "rocksdb", "lmdb")
KEYS, FRAME, WARM_UP = 4_000, 10_000, 2


class Row(NamedTuple):
    """A row of the input."""

    key: int
    amount: int
    number: int


class Total(mp.KeyedProcessFunction):
    """Yield the total of a key per row."""

    @override
    def open(self, context: Any) -> None:
        """Register the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", int))

    @override
    def process_element(self, row: Any, context: Any) -> Iterable[Any]:
        """Add the amount."""
        total = (self.total.value() or 0) + row.amount
        self.total.update(total)
        yield row.key, total


class Failing(Total):
    """Fail at one of 100 rows, after the change of the state."""

    @override
    def process_element(self, row: Any, context: Any) -> Iterable[Any]:
        """Add the amount."""
        yield from super().process_element(row, context)
        if row.number % 100 == 0:
            raise ValueError(row.number)


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
        amount = yield answer(row.amount)
        total = (self.total.value() or 0) + amount
        self.total.update(total)
        yield row.key, total


LETTERS = RowFaults("side_output")
NULLS = RowFaults("fail", "side_output", frozenset({"process_element"}))
CASES: dict[str, tuple[type[Any], RowFaults, Idleness | None]] = {
    "plain": (Total, DEFAULT_FAULTS, None),
    "on_error, no error": (Total, LETTERS, None),
    "on_error, 1 % errors": (Failing, LETTERS, None),
    "idle_timeout": (Total, DEFAULT_FAULTS, Idleness(60_000)),
    "null_event_times": (Total, NULLS, None),
    "one call": (Calling, DEFAULT_FAULTS, None),
}


def opened(backend: str, case: str, stack: ExitStack) -> tuple[KeyedStateBackend, KeyedOperator]:
    """Open the operator of a case, over a backend in a temporary directory."""
    function, faults, idleness = CASES[case]
    start, info = StartingPoint.from_argument(None, None), SubtaskInfo("totals")
    made, operator = open_local_operator(
        stack, function(), start, info, backend, int, faults=faults, idleness=idleness
    )
    stack.enter_context(operator.opened())
    return made, operator


def took(backend: str, case: str, rows: list[Any]) -> float:
    """Return the processor time of a row, in µs; the rows come in frames, as from Spark."""
    with ExitStack() as stack:
        made, operator = opened(backend, case, stack)
        output: list[Any] = []
        gc.collect()
        started = time.process_time_ns()
        for first in range(0, len(rows), FRAME):
            frame = rows[first : first + FRAME]
            operator.expect([row[0] for row in frame], [row[1] for row in frame])
            operator.process_all(frame, output)
            operator.drain(output)
            operator.advance_watermark(frame[-1][-1], output)
        made.flush()
        return (time.process_time_ns() - started) / 1000 / len(rows)


def sizes_took(backend: str, rows: list[Any], rounds: int) -> float:
    """Return the processor time of reading the sizes of the states once, in µs."""
    with ExitStack() as stack:
        made, operator = opened(backend, "plain", stack)
        operator.process_all(rows, [])
        made.flush()
        times = []
        for _ in range(rounds):
            started = time.process_time_ns()
            made.state_sizes()
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
        (key, mp.assign_to_key_group(key, 128), Row(key, number % 9, number), number)
        for number in range(given.rows)
        for key in [7919 * number % KEYS]
    ]
    found = {backend: measure(backend, rows, given.rounds) for backend in BACKENDS}
    (given.output / "options.json").write_text(json.dumps(found, indent=2))
    for backend, report in found.items():
        for case, figure in report.items():
            print(f"{backend:8} {case:30} {figure:10.2f} µs")


if __name__ == "__main__":
    main()
