"""Run one case in a process of its own and print its batch times as one line of JSON."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cases
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cases import CASES, input_schema, session
from millpond.spark import subtask_metrics
from own_process import tell
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_FIRST = 4
"""The number of batches after each start of a query that do not count."""


def customers(numbers: Any, key: str) -> pa.Array:
    """Return the customers' numbers, as integers or as text."""
    return pa.array([f"customer-{each:08d}" for each in numbers] if key == "string" else numbers)


def write_batches(
    folder: Path,
    grow: int,
    keys: int,
    rows: int,
    touched: int,
    count: int,
    key: str = "string",
    first: int = 0,
) -> None:
    """Write one Parquet file per micro-batch; those that grow the state come first.

    The measured files have ``rows`` rows of ``touched`` distinct keys out of ``keys``. The files
    are numbered from ``first``.
    """
    random = np.random.default_rng(7 + first)
    parts = [np.arange(start, min(start + 250_000, grow)) for start in range(0, grow, 250_000)]
    for _ in range(count):
        chosen = random.choice(keys, size=min(touched, keys), replace=False)
        extra = random.choice(chosen, size=max(rows - len(chosen), 0))
        parts.append(random.permutation(np.concatenate([chosen, extra])[:rows]))
    for index, part in enumerate(parts, first):
        table = pa.table(
            {
                "customer": customers(part, key),
                "amount": pa.array(random.integers(1, 1000, len(part)) / 4),
            }
        )
        pq.write_table(table, folder / f"{index:05d}.parquet")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--key", choices=("string", "bigint"), default="string")
    add_batch_options(parser)
    return parser.parse_args()


def add_batch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the size and number of micro-batches."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--touched", type=int, default=43_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--grow", type=int, default=0)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--conf", action="append", default=[], help="a Spark setting: key=value")


def run_query(spark: SparkSession, case: str, key: str, root: Path) -> StreamingQuery:
    """Run the case's job over all files, one per micro-batch, into a sink that drops rows."""
    stream = (
        spark.readStream.schema(input_schema(key))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / "input"))
    )
    mode = "append" if case.startswith(("millpond", "vectorized", "repartition")) else "update"
    query = (
        CASES[case][0](stream)
        .writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def tell_measured(measured: Callable[[Path], dict[str, Any]]) -> None:
    """Measure a case in an empty folder, and report its figures.

    Spark's workers cannot import the functions of a script, so they are pickled by value.
    """
    for module in (cases, sys.modules["__main__"]):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    os.environ["PYTHONWARNINGS"] = "ignore"
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        tell(measured(Path(name)))


class Case:
    """A case in this process; its session serves all requests."""

    def __init__(self, options: argparse.Namespace, root: Path) -> None:
        cloudpickle.register_pickle_by_value(cases)  # type: ignore[no-untyped-call]
        self._options, self._root = options, root
        self._written = 0
        (root / "input").mkdir()
        self._spark = session(options.case, root / "snapshots", options.conf)

    def batches(self, count: int, warm_up: int, grow: int = 0) -> list[dict[str, int]]:
        """Run micro-batches after those that grow the state; return the ms of their parts."""
        given, folder = self._options, self._root / "input"
        sizes = (grow, given.keys, given.rows, given.touched, count)
        write_batches(folder, *sizes, given.key, self._written)
        self._written = len(list(folder.iterdir()))
        query = run_query(self._spark, given.case, given.key, self._root)
        progress = [entry for entry in query.recentProgress if entry.numInputRows]
        measured = progress[len(progress) - count + warm_up :]
        return [dict(entry.durationMs) for entry in measured]

    def figures(self) -> list[dict[str, object]]:
        """Return the figures of Millpond's subtasks in the last batch."""
        if not self._options.case.startswith(("millpond", "vectorized")):
            return []
        checkpoint = str(self._root / "checkpoint")
        return [subtask.metrics for subtask in subtask_metrics(self._spark, checkpoint)]

    def stop(self) -> None:
        """Stop the session."""
        self._spark.stop()


def serve(options: argparse.Namespace, wire: Connection) -> None:
    """Warm a case up, then report the parts of a few micro-batches for each request.

    Each request starts a query, whose first batches meet empty workers and do not count.
    """
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        case = Case(options, Path(name))
        case.batches(options.warm_up, options.warm_up)
        print(f"  {options.case}, {options.key}, {options.rows:,} rows: warm", flush=True)
        wire.send(None)
        while wire.recv():
            wire.send(case.batches(options.batches + _FIRST, _FIRST))
        case.stop()


def main() -> None:
    """Write the input, run the query, report the batches."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        case = Case(options, Path(name))
        durations = case.batches(options.batches, options.warm_up, options.grow)
        figures = case.figures()
        case.stop()
    tell({**vars(options), "durations": durations, "figures": figures})


if __name__ == "__main__":
    main()
