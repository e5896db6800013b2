"""Measure the processor time per row in the worker, without Spark.

The batch is that of the throughput benchmark: 100,000 rows, 43,000 of 100,000 keys, two subtasks,
a running sum, one output row per input row. The real runner gets the frames in Spark's form, and
each subtask ends with a snapshot. Each case has a process of its own, since inline caches belong
to a process; the cases with the same kind of key take turns, batch by batch. Figures are medians
of processor time, all threads included. Opening and closing a store, once per task, does not
count.

Timers at the borders of the parts split a batch. The loop, the function and the state calls are
separated by functions that do less: one that does nothing, one without state. Many real jobs have
a key of two columns and a timestamp column as event time.

Usage: worker.py [--batches 12] [--warm-up 4] [--backends heap,lmdb,rocksdb]
                 [--keys "int;str;str, int"] [--output out/bench]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import millpond as mp
import numpy as np
import pandas as pd
from cases import Totals, VectorizedTotals
from millpond.functions.functions import SubtaskInfo
from millpond.operator.opening import open_operator_backend
from millpond.operator.operators import KeyedOperator
from millpond.plugins import get_registry
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.timing import BatchTime
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.values.side_outputs import Packer
from millpond_spark.worker.gc_control import gc_paused
from millpond_spark.worker.runner import runner_of
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from turns import in_turns
from typing_extensions import override

ROWS, TOUCHED, KEYS = 100_000, 43_000, 100_000
FRAME_ROWS = 50_000
SUBTASKS = 2
GROUPS = 128
DIFFERENT = 4
KEYS_OF: dict[str, tuple[Any, ...]] = {
    "int": (LongType(),),
    "str": (StringType(),),
    "str, int": (StringType(), LongType()),
}
"""The types of the key columns. With two key columns, a timestamp column has the event time."""

START = 1_700_000_000_000_000
VECTORIZED = "vectorized"
"""A running sum over whole frames that yields one row per key, its total."""

TOTAL_PARTS = ("decode", "rows", "flush", "snapshot", "encode", "rest")
PARTS = ("decode", "loop and keys", "function", "state calls", *TOTAL_PARTS[2:], VECTORIZED)


class Stateless(Totals):
    """The running sum without its state."""

    @override
    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Yield a row."""
        total = 0.0 + row.amount
        yield row.customer, total


class Idle(Totals):
    """A function that does nothing: only the loop and the choice of the key remain."""

    @override
    def process_element(self, row: Any, context: mp.Context) -> Any:
        """Do nothing."""


FUNCTIONS: dict[str, type[Totals | VectorizedTotals]] = {
    "totals": Totals,
    "stateless": Stateless,
    "idle": Idle,
    VECTORIZED: VectorizedTotals,
}


def key_of(kind: str, number: int) -> Any:
    """Return a key as in the throughput benchmark, or one of two columns."""
    if kind == "int":
        return int(number)
    text = f"customer-{number:08d}"
    return text if kind == "str" else (text, int(number) % 7)


def batches(kind: str) -> list[list[list[pd.DataFrame]]]:
    """Return a few different batches: each subtask's frames in Spark's form."""
    random = np.random.default_rng(7)
    groups = np.array([mp.assign_to_key_group(key_of(kind, at), GROUPS) for at in range(KEYS)])
    made = []
    for _ in range(DIFFERENT):
        chosen = random.choice(KEYS, size=TOUCHED, replace=False)
        extra = random.choice(chosen, size=ROWS - TOUCHED)
        rows = random.permutation(np.concatenate([chosen, extra]))
        owners = groups[rows] * SUBTASKS // GROUPS
        made.append([frames_of(kind, rows[owners == at], groups) for at in range(SUBTASKS)])
    return made


def frames_of(kind: str, numbers: Any, groups: Any) -> list[pd.DataFrame]:
    """Return the frames of a batch; Arrow makes a new string for each row, so do these."""
    amounts = np.random.default_rng(len(numbers)).integers(1, 1000, len(numbers)) / 4
    frames = []
    for start in range(0, len(numbers), FRAME_ROWS):
        part = numbers[start : start + FRAME_ROWS]
        amount = amounts[start : start + FRAME_ROWS]
        columns = [part if kind == "int" else np.array([key_of("str", n) for n in part], object)]
        if len(KEYS_OF[kind]) > 1:
            columns += [part % 7, amount, START + part * 1_000_003]
        else:
            columns.append(amount)
        frame = {f"c{at}": column for at, column in enumerate(columns)}
        nulls = {"nulls0": np.zeros(len(part), np.int64)}
        frames.append(pd.DataFrame({**frame, **nulls, GROUP_COLUMN: groups[part].astype(np.int32)}))
    return frames


class Case:
    """One backend with one kind of key, in this process.

    Attributes:
        laps: nanoseconds of processor time by part of the present batch.
    """

    def __init__(self, backend: str, kind: str, function: str, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millpond-bench-")))
        keys = KEYS_OF[kind]
        fields = [
            StructField(name, each) for name, each in zip(("customer", "shop"), keys, strict=False)
        ]
        fields.append(StructField("amount", DoubleType()))
        if len(keys) > 1:
            fields.append(StructField("time", TimestampType()))
        outcome = [StructField("customer", keys[0]), StructField("total", DoubleType())]
        self.plan = OperatorPlan(
            uid="totals",
            function=FUNCTIONS[function](),
            rows=RowCodec.from_schema(StructType(fields)),
            output=OutputCodec.from_schema(StructType(outcome)),
            key_positions=tuple(range(len(keys))),
            key_fields=keys,
            event_time=3 if len(keys) > 1 else None,
            order_by=(),
            parallelism=SUBTASKS,
            config=mp.Config(),
            resolution=get_registry().resolve(backend),
        )
        self.storage = mp.checkpoint_storage(f"file:{folder}/snapshots")
        self.backends = [
            mp.open_keyed_backend(
                backend,
                key_type=self.plan.key_codec(),
                max_parallelism=GROUPS,
                key_group_range=mp.key_group_range(GROUPS, SUBTASKS, at),
                directory=folder / f"local-{at}",
                clock=mp.ManualClock(0),
            )
            for at in range(SUBTASKS)
        ]
        for each in self.backends:
            stack.callback(each.close)
        self.input = itertools.cycle(batches(kind))
        self.number = 0
        self.laps: Counter[str] = Counter()
        for owner, method, part in (
            (RowCodec, "decode", "decode"),
            (KeyedOperator, "expect", "rows"),
            (KeyedOperator, "process_all", "rows"),
            (Packer, "add", "encode"),
            (Packer, "take", "encode"),
            (type(self.backends[0]), "flush", "flush"),
        ):
            self._time(owner, method, part)

    def _time(self, owner: type, method: str, part: str) -> None:
        plain: Callable[..., Any] = getattr(owner, method)

        def timed(*given: Any, **named: Any) -> Any:
            started = time.process_time_ns()
            try:
                return plain(*given, **named)
            finally:
                self.laps[part] += time.process_time_ns() - started

        setattr(owner, method, timed)

    def batch(self) -> dict[str, float]:
        """Run a batch; return microseconds per row, by part and in total."""
        self.number += 1
        self.laps.clear()
        inputs = [[frame.copy() for frame in frames] for frames in next(self.input)]
        started = time.process_time_ns()
        for at, frames in enumerate(inputs):
            self._subtask(at, frames)
        laps = dict(self.laps)
        laps["total"] = time.process_time_ns() - started
        laps["snapshot"] -= laps.get("flush", 0)
        laps["rest"] = laps["total"] - sum(laps.get(part, 0) for part in TOTAL_PARTS[:-1])
        return {part: took / 1000 / ROWS for part, took in laps.items()}

    def _subtask(self, at: int, frames: list[pd.DataFrame]) -> None:
        backend = self.backends[at]
        info = SubtaskInfo("totals", at, SUBTASKS, GROUPS)
        with gc_paused(), open_operator_backend() as operator_state:
            runner = runner_of(self.plan)(self.plan, info, backend, operator_state)
            with runner.operator.opened():
                for _ in runner.run(frames, BatchTime(0, 0)):
                    pass
            processed = time.process_time_ns()
            backend.snapshot(self.number, self.storage).result()
            backend.notify_checkpoint_complete(self.number)
        self.laps["snapshot"] += time.process_time_ns() - processed


def serve(case: tuple[str, str, str], wire: Connection) -> None:
    """Run batches of one case on request."""
    with ExitStack() as stack:
        made = Case(*case, stack)
        wire.send(None)
        while wire.recv():
            wire.send(made.batch())


def measure(cases: list[tuple[str, str, str]], count: int, warm_up: int) -> dict[Any, Any]:
    """Return the samples of all cases, which take turns batch by batch."""
    return in_turns({case: partial(serve, case) for case in cases}, count, warm_up)


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each part."""
    parts = dict.fromkeys(itertools.chain.from_iterable(samples))
    return {part: statistics.median(each.get(part, 0.0) for each in samples) for part in parts}


def taken_apart(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the parts of a case, including those measured with functions that do less."""
    if "totals" not in found:
        return next(iter(found.values()))
    whole = found["totals"]
    if VECTORIZED in found:
        whole = {**whole, VECTORIZED: found[VECTORIZED]["total"]}
    if "idle" not in found:
        return whole
    loop, stateless = found["idle"]["rows"], found["stateless"]["rows"]
    rows = {
        "loop and keys": loop,
        "function": stateless - loop,
        "state calls": whole["rows"] - stateless,
    }
    return {**whole, **rows}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--backends", default="heap,lmdb,rocksdb")
    parser.add_argument("--keys", default=";".join(KEYS_OF))
    parser.add_argument("--functions", default="totals,stateless,idle,vectorized")
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    wanted = (given.backends.split(","), given.keys.split(";"), given.functions.split(","))
    # The vectorized function gives the key as the one column that it is.
    cases = [
        (backend, kind, function)
        for backend, kind, function in itertools.product(*wanted)
        if function != VECTORIZED or len(KEYS_OF[kind]) == 1
    ]
    # A kind of key after the other: the more processes take turns, the colder their caches.
    samples: dict[Any, Any] = {}
    for kind in wanted[1]:
        samples |= measure([c for c in cases if c[1] == kind], given.batches, given.warm_up)
    report: dict[str, dict[str, float]] = {}
    for kind, backend in itertools.product(wanted[1], wanted[0]):
        run = [each for each in wanted[2] if (backend, kind, each) in samples]
        found = {each: medians(samples[backend, kind, each]) for each in run}
        parts = report[f"{backend}, {kind}"] = taken_apart(found)
        shown = PARTS if "loop and keys" in parts else TOTAL_PARTS
        told = "  ".join(f"{part} {parts[part]:.2f}" for part in shown if part in parts)
        print(f"{backend:8} {kind:8} {parts['total']:.2f} µs a row:  {told}")
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "worker.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
