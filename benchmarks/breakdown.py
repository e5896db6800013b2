"""Measure each part of a steady batch, in wall-clock and processor time.

The cases: a bare pass through Python; Millpond's mechanism with plain output (one group per
subtask, whose state is one small row); Spark's aggregation in the JVM; Millpond on each backend,
row by row and vectorized. Batches have three sizes. Each case runs in a process of its own, and
the cases take turns, round by round. A part is the median over the measured batches of all rounds.
The script prints two tables per size and writes breakdown.json and breakdown.png.

Usage: breakdown.py [--rounds 2] [--batches 12] [--sizes 100,10000,100000] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl
from own_process import run_in_own_process
from rich.console import Console
from rich.table import Table

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
CASES = (
    "repartition",
    "pointer",
    "spark-jvm-agg",
    "millpond-heap",
    "millpond-rocksdb",
    "millpond-lmdb",
    "vectorized-heap",
    "vectorized-rocksdb",
    "vectorized-lmdb",
)
WALL = (
    "source",
    "planning",
    "logs",
    "driver",
    "input stage",
    "task start",
    "open",
    "decode",
    "function",
    "flush",
    "snapshot",
    "encode",
    "store commit",
    "JVM and Arrow",
)
OWN = ("open", "decode", "function", "flush", "snapshot", "encode")
"""The parts of a state task that belong to Millpond and the function; Spark has all others."""

PROCESSOR = (
    "JVM: input tasks",
    "JVM: state tasks",
    "JVM: elsewhere",
    "decode",
    "function",
    "flush",
    "snapshot",
    "encode",
    "Python: elsewhere",
)
CONSOLE = Console(width=130)


def run_case(case: str, rows: int, batches: int) -> dict[str, Any]:
    """Run a case in a process of its own."""
    return run_in_own_process("breakdown_case.py", [case], {"rows": rows, "batches": batches})


def wall_parts(batch: dict[str, Any]) -> dict[str, float]:
    """Return the wall-clock milliseconds of each part: means, since subtasks run in parallel."""
    durations, stages, ours = batch["durations"], batch["stages"], batch.get("subtasks", {})
    flush = ours.get("lap_flush_wall", 0.0)
    parts = {
        "source": durations["latestOffset"] + durations["getBatch"],
        "planning": durations["queryPlanning"],
        "logs": durations["walCommit"] + durations["commitOffsets"],
        "input stage": stages.get("input_wall", 0.0),
        "task start": stages["state_start"],
        "open": ours.get("open_ms", 0.0),
        "decode": ours.get("lap_decode_wall", 0.0),
        "function": ours.get("lap_rows_wall", 0.0),
        "flush": flush,
        "snapshot": max(ours.get("lap_commit_wall", 0.0) - flush, 0.0),
        "encode": ours.get("lap_encode_wall", 0.0),
        "store commit": batch.get("store_commit", 0.0),
    }
    in_state = sum(parts[name] for name in WALL[WALL.index("task start") : -1])
    parts["JVM and Arrow"] = max(stages["state_wall"] - in_state, 0.0)
    parts["driver"] = max(durations["triggerExecution"] - sum(parts.values()), 0.0)
    return parts


def processor_parts(batch: dict[str, Any], cpu: dict[str, float]) -> dict[str, float]:
    """Return the processor milliseconds of each part, summed over all subtasks."""
    stages, ours = batch["stages"], batch.get("subtasks", {})
    flush = ours.get("lap_flush_cpu", 0.0)
    parts = {
        "JVM: input tasks": stages.get("input_cpu", 0.0),
        "JVM: state tasks": stages["state_cpu"],
        "decode": ours.get("lap_decode_cpu", 0.0),
        "function": ours.get("lap_rows_cpu", 0.0),
        "flush": flush,
        "snapshot": max(ours.get("lap_commit_cpu", 0.0) - flush, 0.0),
        "encode": ours.get("lap_encode_cpu", 0.0),
    }
    tasks = parts["JVM: input tasks"] + parts["JVM: state tasks"]
    python = sum(took for name, took in parts.items() if not name.startswith("JVM"))
    parts["JVM: elsewhere"] = max(cpu["jvm"] - tasks, 0.0)
    parts["Python: elsewhere"] = max(cpu["python"] - python, 0.0)
    return parts


def medians(of: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each part."""
    return {name: statistics.median(each[name] for each in of) for name in of[0]}


def summed(reports: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the parts of a case over the batches of all its runs."""
    wall = [wall_parts(batch) for report in reports for batch in report["batches"]]
    cpu = [
        processor_parts(batch, report["cpu"]) for report in reports for batch in report["batches"]
    ]
    return {"wall": medians(wall), "processor": medians(cpu)}


def print_tables(rows: int, found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print a table of wall-clock time and one of processor time."""
    for kind, names in (("wall", WALL), ("processor", PROCESSOR)):
        table = Table("part, ms", *found, title=f"{rows:,} rows a batch: {kind} time")
        for name in names:
            table.add_row(name, *(f"{each[kind][name]:,.0f}" for each in found.values()))
        table.add_row("sum", *(f"{sum(each[kind].values()):,.0f}" for each in found.values()))
        CONSOLE.print(table)


def plot(results: dict[int, dict[str, dict[str, dict[str, float]]]], path: Path) -> None:
    """Draw stacked bars, one row of pictures per size: wall-clock and processor time."""
    figure, grid = plt.subplots(len(results), 2, figsize=(15, 3.6 * len(results)), squeeze=False)
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for row, (rows, found) in zip(grid, results.items(), strict=True):
        for axes, (kind, names) in zip(
            row, (("wall", WALL), ("processor", PROCESSOR)), strict=True
        ):
            left = [0.0] * len(found)
            for at, name in enumerate(names):
                widths = [each[kind][name] for each in found.values()]
                axes.barh(list(found), widths, left=left, color=colours[at], label=name)
                left = [before + width for before, width in zip(left, widths, strict=True)]
            axes.invert_yaxis()
            axes.set_xlabel(f"ms of {kind} time, {rows:,} rows a batch")
    for column, (x, across) in enumerate(((0.27, 5), (0.77, 4))):
        handles, labels = grid[0][column].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(x, 1.0), ncol=across)
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the cases, print the tables and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--sizes", default="100,10000,100000")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    results = {}
    for rows in map(int, options.sizes.split(",")):
        reports: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
        for _ in range(options.rounds):
            for case in CASES:
                reports[case].append(run_case(case, rows, options.batches))
        results[rows] = {case: summed(mine) for case, mine in reports.items()}
        print_tables(rows, results[rows])
    (options.output / "breakdown.json").write_text(json.dumps(results, indent=1))
    plot(results, options.output / "breakdown.png")
    CONSOLE.print(f"Written: {options.output}/breakdown.json, breakdown.png")


if __name__ == "__main__":
    main()
