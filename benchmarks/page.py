"""Writes docs/benchmarks.md and its pictures from what the benchmarks have measured.

Usage: page.py [FOLDER]   (by default out/bench, where `make bench` writes)
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = (
    "throughput.png",
    "growth.png",
    "checkpoints.png",
    "ttl.png",
    "wrappers.png",
    "windows.png",
)
HEAD = """# Benchmarks

`make bench` measures everything on this page and writes tables, JSON and plots under `out/bench`;
`benchmarks/page.py` makes this page of them. Measured on a machine with 2 cores, pyspark 4.3,
Python 3.11 and Java 17.

## A running total per key

100,000 rows and 43,000 distinct keys a micro-batch; a read, an addition and a write per row. Each
case runs in a process of its own on `local[2]`. The cases take turns in two rounds, since the
machine's speed drifts; a figure is the median over all measured batches of a case. The two pandas
APIs of Spark got 20,000 rows and 8,600 keys.

![rows a second](images/throughput.png)

| case | rows | median s | rows/s | × JVM time | × transformWithState (Row) |
|---|---:|---:|---:|---:|---:|"""
FLOOR = """
`repartition` is a bare shuffle with a pass through Python: the floor of every Python job.
`spark-jvm-agg` is Spark's own aggregation in the JVM with its RocksDB provider; it gives a row per
key, Millpond's function one per input row.

## Growing state

The same micro-batch, with the state grown beforehand. A batch's cost depends on the batch.

![seconds a batch over keys](images/growth.png)

| case | 50,000 keys | 500,000 keys | 2,000,000 keys | largest / smallest |
|---|---:|---:|---:|---:|"""
CHECKPOINTS = """
Heap holds as long as the worker keeps its state. Spark hands tasks to Python workers in any order,
so a worker may have to catch up by a delta, or, the first time it gets a subtask, restore it whole.

## Checkpoints

A snapshot of the changelog strategy after 1 % of {keys:,} keys was touched. *Touched* is the
serialized size of these entries, keys included.

| backend | touched bytes | bytes written | written / touched |
|---|---:|---:|---:|
{cost}

A restore of all of them, beside one loop that reads the same files and puts the same rows into a
bare store (a dictionary, rocksdict, lmdb), and rescales from 2 to 3 and from 3 to 2 subtasks, all
subtasks one after the other.

![seconds of restores](images/checkpoints.png)

| backend | bare loop s | restore s | restore's speed | 2 to 2 s | 2 to 3 s | 3 to 2 s | rescale |
|---|---:|---:|---:|---:|---:|---:|---:|
{speed}
"""

WINDOWS = """
## Windows

Windows over some months of the Online Retail data, 20 days a micro-batch, beside Spark's own
aggregation with its RocksDB provider; the results are compared row by row and equal
(`benchmarks/windows.py FOLDER`). Seconds of a whole query, medians.

![seconds of windows](images/windows.png)

| windows | Spark | heap | RocksDB | LMDB |
|---|---:|---:|---:|---:|
{windows}
"""
WRAPPERS = """
## Wrappers

A read-modify-write of an int, its share of the flush included (`benchmarks/wrappers.py`), in
processor time; cases take turns, medians, ratios within rounds. *Plain again* is the same as
*plain*: what differs between the two is noise.

![cost of wrappers](images/wrappers.png)

| case | heap | RocksDB | LMDB |
|---|---:|---:|---:|
{wrappers}
"""
TTL = """
## Clean-up of expired entries

Twenty thousand new keys a day that nobody reads again, five days to live, over 100 simulated days
(`benchmarks/ttl.py`). Stored entries by live ones, and bytes by those of a fresh store with the
live entries alone; the worst of all days.

![stored by live](images/ttl.png)

| backend | entries | bytes |
|---|---:|---:|
{ttl}
"""
QUERIES = """
## Queryable state

A client with a million keys, 20,000 queries by random key (`benchmarks/queries.py`).

| backend | opening s | median ms | p99 ms | worst ms |
|---|---:|---:|---:|---:|
{queries}
"""


def further(folder: Path) -> str:
    """The sections of the other benchmarks."""

    def read(name: str) -> Any:
        return json.loads((folder / f"{name}.json").read_text())

    windows, wrappers, ttl, queries = map(read, ("windows", "wrappers", "ttl", "queries"))
    backends = ("heap", "rocksdb", "lmdb")
    rows = {
        "windows": [
            f"| {kind} | " + " | ".join(f"{each[case]:.1f}" for case in ("spark", *backends)) + " |"
            for kind, each in windows.items()
        ],
        "wrappers": [
            f"| {case} | "
            + " | ".join(
                f"{wrappers['ns'][b][case]:,.0f} ns ({wrappers['more'][b][case]:+.0%})"
                for b in backends
            )
            + " |"
            for case in wrappers["ns"]["heap"]
        ],
        "ttl": [ttl_row(name, ttl["samples"][name], ttl["fresh"][name]) for name in backends],
        "queries": [
            f"| {name} | {q['open_s']:.1f} | {q['p50_ms']:.3f} | {q['p99_ms']:.3f} "
            f"| {q['max_ms']:.3f} |"
            for name, q in queries.items()
        ],
    }
    text = WINDOWS + WRAPPERS + TTL + QUERIES
    return text.format(**{name: "\n".join(lines) for name, lines in rows.items()})


def ttl_row(name: str, samples: list[dict[str, Any]], fresh: int) -> str:
    """The worst ratios of one backend, once the first entries have expired."""
    late = [sample for sample in samples if sample["day"] > 5]
    entries = max(sample["stored"] / sample["live"] for sample in late)
    size = f"{max(sample['bytes'] for sample in late) / fresh:.2f}" if fresh else "–"
    return f"| {name} | {entries:.2f} | {size} |"


def comparison(reports: list[dict[str, Any]]) -> list[str]:
    """The rows of the first table."""
    cases = {report["case"]: report for report in reports}
    jvm, tws = cases["spark-jvm-agg"], cases["spark-tws-row"]
    lines = []
    for r in reports:
        times = f"{r['median'] / jvm['median']:.2f}" if r["rows"] == jvm["rows"] else "–"
        speed = f"{r['rows_per_s'] / tws['rows_per_s']:.1f}"
        lines.append(
            f"| {r['case']} | {r['rows']:,} | {r['median']:.2f} | {r['rows_per_s']:,.0f} "
            f"| {times} | {speed} |"
        )
    return lines


def growth(reports: list[dict[str, Any]]) -> list[str]:
    """The rows of the second table."""
    lines = []
    for case in dict.fromkeys(report["case"] for report in reports):
        medians = [report["median"] for report in reports if report["case"] == case]
        cells = " | ".join(f"{median:.2f} s" for median in medians)
        lines.append(f"| {case} | {cells} | {medians[-1] / medians[0]:.2f} |")
    return lines


def checkpoints(reports: list[dict[str, Any]]) -> str:
    """The last section."""
    cost = [
        f"| {r['backend']} | {r['touched_bytes']:,} | {r['written']:,} "
        f"| {r['written'] / r['touched_bytes']:.2f} |"
        for r in reports
    ]
    speed = [
        f"| {r['backend']} | {r['bare loop']:.2f} | {r['restore']:.2f} "
        f"| {r['bare loop'] / r['restore']:.0%} | {r['2 to 2']:.2f} | {r['2 to 3']:.2f} "
        f"| {r['3 to 2']:.2f} | {max(r['2 to 3'], r['3 to 2']) / r['2 to 2']:.2f} |"
        for r in reports
    ]
    return CHECKPOINTS.format(keys=reports[0]["keys"], cost="\n".join(cost), speed="\n".join(speed))


def main(folder: Path) -> None:
    """Write the page."""
    results = json.loads((folder / "results.json").read_text())
    stored = json.loads((folder / "checkpoints.json").read_text())
    parts = [HEAD, *comparison(results["compared"]), FLOOR, *growth(results["grown"])]
    text = "\n".join([*parts, checkpoints(stored)]) + further(folder)
    (DOCS / "benchmarks.md").write_text(text)
    for picture in PICTURES:
        shutil.copy(folder / picture, DOCS / "images" / picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/bench"))
