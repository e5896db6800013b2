"""Compare windows with Spark's own aggregation on the retail data: equal results, and time.

Usage: windows.py FOLDER [--days 20] [--warm-up 6] [--rounds 6] [--output out/bench]
(FOLDER: the CSV files)
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from cases import DEFAULT_FILES
from millpond import windows
from millpond.spark import configure, key_by
from millpond_spark.session.group_labels import group_labels
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

mpl.use("agg")
import matplotlib.pyplot as plt

SCHEMA = (
    "InvoiceNo string, StockCode string, Description string, Quantity int, InvoiceDate timestamp, "
    "UnitPrice double, CustomerID string, Country string"
)
SUMS = "customer string, start bigint, end bigint, pieces bigint"
HOUR = 3_600_000
KINDS: dict[str, tuple[Any, Callable[[], Column]]] = {
    "tumbling": (windows.TumblingEventTimeWindows.of(HOUR), lambda: F.window("t", "1 hour")),
    "sliding": (
        windows.SlidingEventTimeWindows.of(2 * HOUR, HOUR),
        lambda: F.window("t", "2 hours", "1 hour"),
    ),
    "session": (
        windows.EventTimeSessionWindows.with_gap(HOUR // 2),
        lambda: F.session_window("t", "30 minutes"),
    ),
}
BACKENDS = ("heap", "rocksdb", "lmdb")
SPARK = {"spark-default": DEFAULT_FILES, "spark": {}}
"""Spark's aggregation with its default file manager, and in a session set up by ``configure``."""

FLOOR = "to-python"
"""The floor: a pass to a Python worker and back, with a pointer per subtask and no output."""

CASES = (*SPARK, FLOOR, *BACKENDS)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def lines_of(spark: SparkSession, source: Path, days: int) -> DataFrame:
    """Return the order lines of known customers, some days per micro-batch."""
    reader = spark.readStream.schema(SCHEMA).option("header", "true")
    lines = reader.option("maxFilesPerTrigger", days).csv(str(source / "*.csv.gz"))
    named = lines.where("CustomerID is not null")
    named = named.selectExpr("CustomerID customer", "InvoiceDate t", "cast(Quantity as bigint) n")
    return named.withWatermark("t", "1 day")


def to_python(lines: DataFrame) -> DataFrame:
    """Return the floor: Millpond's mechanism with one group per subtask and no work."""

    def passing(_: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[Any]:
        rows = sum(map(len, frames))
        state.update((f"{rows} rows",))
        yield from ()

    labels = F.array(*map(F.lit, group_labels(2)))
    subtask = F.expr("pmod(xxhash64(customer), 2)").cast("int")
    keyed = lines.withColumn("label", F.get(labels, subtask)).groupBy("label")
    return keyed.applyInPandasWithState(
        passing, SUMS, "pointer string", "append", "EventTimeTimeout"
    )


def job(case: str, kind: str, lines: DataFrame) -> DataFrame:
    """Return the aggregation by Millpond on a backend, or by Spark, or the floor."""
    assigner, column = KINDS[kind]
    if case == FLOOR:
        return to_python(lines)
    if case in BACKENDS:
        windowed = key_by(lines, "customer").window(assigner)
        return windowed.reduce(add, int, "n", output=SUMS, uid="windows")
    grouped = lines.groupBy("customer", column().alias("w")).agg(F.sum("n").alias("pieces"))
    return grouped.select(
        "customer",
        F.unix_millis("w.start").alias("start"),
        F.unix_millis("w.end").alias("end"),
        "pieces",
    )


def run(spark: SparkSession, case: str, kind: str, source: Path, days: int) -> tuple[float, Any]:
    """Return the seconds of the whole query, and its rows."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        spark.conf.set("spark.millpond.checkpoint.dir", (root / "snapshots").as_uri())
        spark.conf.set("spark.millpond.state.backend", case if case in BACKENDS else "heap")
        chosen = {name: spark.conf.get(name) or "" for name in DEFAULT_FILES}
        for name, value in {**chosen, **SPARK.get(case, {})}.items():
            spark.conf.set(name, value)
        out = job(case, kind, lines_of(spark, source, days))
        writer = out.writeStream.trigger(availableNow=True).format("parquet")
        writer = writer.option("checkpointLocation", str(root / "checkpoint"))
        started = time.perf_counter()
        writer.option("path", str(root / "out")).start().awaitTermination()
        seconds = time.perf_counter() - started
        for name, value in chosen.items():
            spark.conf.set(name, value)
        return seconds, sorted(map(tuple, spark.read.parquet(str(root / "out")).collect()))


def plot(report: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the seconds of each kind of window by case."""
    figure, axis = plt.subplots(figsize=(8, 3.4))
    for at, case in enumerate(CASES):
        positions = [number + at * 0.14 for number in range(len(KINDS))]
        medians = [report[kind][case]["median"] for kind in KINDS]
        axis.bar(positions, medians, 0.14, label=case)
    axis.set_xticks([number + 0.35 for number in range(len(KINDS))], list(KINDS))
    axis.set_ylabel("seconds of the query")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=len(CASES))
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run all kinds and cases in turns, compare the results, write JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=20, help="files a micro-batch")
    parser.add_argument("--warm-up", type=int, default=6, help="rounds that do not count")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
    )
    configure(builder, parallelism=2)
    spark = builder.getOrCreate()
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    seconds: dict[str, dict[str, list[float]]] = {k: {c: [] for c in CASES} for k in KINDS}
    for turn in range(-given.warm_up, given.rounds):
        for kind in KINDS:
            results = {}
            for case in CASES:
                took, results[case] = run(spark, case, kind, given.folder, given.days)
                if turn >= 0:
                    seconds[kind][case].append(took)
            results.pop(FLOOR)
            assert all(found == results["spark"] for found in results.values()), kind
            print(f"round {turn}, {kind}: {len(results['spark'])} windows, all equal", flush=True)
    report: dict[str, dict[str, Any]] = {
        kind: {c: {"median": statistics.median(s), "seconds": s} for c, s in each.items()}
        for kind, each in seconds.items()
    }
    for kind, found in report.items():
        print(kind, {case: round(each["median"], 1) for case, each in found.items()}, flush=True)
    (given.output / "windows.json").write_text(json.dumps(report))
    plot(report, given.output / "windows.png")
    spark.stop()


if __name__ == "__main__":
    main()
