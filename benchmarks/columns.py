"""Measure rows of a thousand columns: building the operator, and a micro-batch.

Usage: columns.py [--columns 1000] [--rows 200] [--batches 4] [--output out/bench]

Millpond's operator and a function under Spark's own ``applyInPandasWithState`` read the same files
and return all columns. Each case has a process of its own, since most of a first batch is spent by
a JVM that has not compiled its code yet. The figures are wall-clock seconds, and processor seconds
of the driver, the JVM and the workers together.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millpond as mp
import pandas as pd
from millpond.spark import configure, key_by
from own_process import run_cases
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typing_extensions import override

KINDS = ("bigint", "double", "string")
_TICKS = os.sysconf("SC_CLK_TCK")


class Through(mp.KeyedProcessFunction):
    """A function that yields each row unchanged."""

    @override
    def process_element(self, row: Any, context: mp.Context) -> Iterator[Any]:
        """Yield the row."""
        yield row


def through(_: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Return the frames of a group unchanged, with one group's state."""
    state.update((1,))
    for frame in frames:
        yield frame.drop(columns="group", errors="ignore")


def operator(df: DataFrame, schema: str) -> DataFrame:
    """Return Millpond's case."""
    return key_by(df, "c0").process(Through(), output=schema, uid="through")


def plain(df: DataFrame, schema: str) -> DataFrame:
    """Return Spark's case."""
    grouped = df.withColumn("group", F.pmod(F.xxhash64("c0"), F.lit(2))).groupBy("group")
    return grouped.applyInPandasWithState(through, schema, "n int", "append", "NoTimeout")


CASES: dict[str, Callable[[DataFrame, str], DataFrame]] = {"plain": plain, "millpond": operator}


def processor_s() -> float:
    """Return the processor time of this process and its descendants."""
    stats = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        stats[int(entry.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in stats.items() if parent in mine} - mine:
        mine |= more
    return sum(stats[pid][1] for pid in mine) / _TICKS


class Stopwatch:
    """A stopwatch with wall-clock and processor time."""

    def __init__(self) -> None:
        """Start the stopwatch."""
        self._begun = time.perf_counter(), processor_s()

    def read(self, what: str) -> dict[str, float]:
        """Return wall-clock and processor seconds, with names that begin with the phase."""
        begun, used = self._begun
        return {f"{what}_s": time.perf_counter() - begun, f"{what}_cpu_s": processor_s() - used}


def session() -> SparkSession:
    """Start a quiet local session for two subtasks."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return configure(builder, parallelism=2).config("spark.log.level", "FATAL").getOrCreate()


def measured(case: str, given: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of building the query, of its first batch and of later ones (median)."""
    spark = session()
    columns = [(f"c{at}", KINDS[at % len(KINDS)]) for at in range(given.columns)]
    schema = ", ".join(f"{name} {kind}" for name, kind in columns)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = folder / "input"
        files.mkdir()
        spark.conf.set("spark.millpond.checkpoint.dir", (folder / "snapshots").as_uri())
        df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(files))
        watch = Stopwatch()
        built = CASES[case](df, schema)
        found = watch.read("build")
        writer = built.writeStream.format("noop").option("checkpointLocation", str(folder / case))
        batches = []
        for number in range(given.batches):
            write(files / f"{number}.json", columns, given.rows)
            watch = Stopwatch()
            writer.trigger(availableNow=True).start().awaitTermination()
            batches.append(watch.read("batch"))
            print(case, {name: round(value, 1) for name, value in batches[-1].items()}, flush=True)
    spark.stop()
    found |= {f"first_{name}": value for name, value in batches[0].items()}
    return found | {
        name: statistics.median(batch[name] for batch in batches[1:]) for name in batches[0]
    }


def write(path: Path, columns: list[tuple[str, str]], rows: int) -> None:
    """Write a file of rows; each column holds the row's number."""
    lines = [
        json.dumps({name: str(at) if kind == "string" else at for name, kind in columns})
        for at in range(rows)
    ]
    path.write_text("\n".join(lines))


def main() -> None:
    """Run each case in a process of its own; print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--batches", type=int, default=4)
    run_cases(parser, tuple(CASES), measured)


if __name__ == "__main__":
    main()
