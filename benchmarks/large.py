"""Measure ten million keys, and a micro-batch of five million rows: time, memory and disk.

For each backend that holds its state on disk: steady batches with few keys and with many; then,
with many keys, a full snapshot, a restore by an empty worker, and rescales to three subtasks and
back, each as a run of the same query. Then one micro-batch of many rows with two sizes of the
write buffer. Long restores show their progress. The script prints tables and writes large.json.

Usage: large.py [--keys 10000000] [--rows 5000000] [--backends rocksdb,lmdb] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from own_process import run_in_own_process
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
FEW = 50_000
FRAMES = 50_000
LIMITS = (("256mb", FRAMES), ("16mb", FRAMES), ("16mb", 10_000))
"""`buffer.max-bytes` and rows per frame of the large micro-batch."""
CONSOLE = Console(width=120)


def run_step(backend: str, folder: Path, *conf: str, **options: int | str) -> dict[str, Any]:
    """Run a step in a process of its own and show its progress."""
    arguments = [f"millpond-{backend}", str(folder), *(f"--conf={setting}" for setting in conf)]
    return run_in_own_process("large_case.py", arguments, options, show_errors=True)


def forget_copies(folder: Path, copies: str) -> None:
    """Remove a step's local copies and wait until the disk has written everything.

    Otherwise the system still writes the copies of one step while the next one is timed.
    """
    shutil.rmtree(folder / f"local-{copies}")
    os.sync()


def subtask_seconds(report: dict[str, Any], phase: str) -> float:
    """Return the seconds of a phase in the last batch, summed over the subtasks."""
    return sum(float(each[phase]) for each in report["subtasks"]) / 1000


def with_keys(backend: str, keys: int, batches: int, warm_up: int) -> dict[str, Any]:
    """Return the figures of one backend with few keys and with many."""
    steady = {"rows": 100_000, "touched": 43_000, "batches": batches, "warm_up": warm_up}
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        run_step(backend, Path(name), grow=FEW, keys=FEW)
        few = run_step(backend, Path(name), keys=FEW, **steady)
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        root = Path(name)
        run_step(backend, root, grow=keys, keys=keys)
        many = run_step(backend, root, keys=keys, **steady)
        full = "spark.millpond.state.snapshot.strategy=full"
        snapshot = run_step(backend, root, keys=keys, conf=full)
        forget_copies(root, "a")
        restored = run_step(backend, root, keys=keys, copies="b")
        forget_copies(root, "b")
        three = run_step(backend, root, keys=keys, copies="c", parallelism=3)
        forget_copies(root, "c")
        two = run_step(backend, root, keys=keys, copies="d", parallelism=2)
    restore = subtask_seconds(restored, "open_ms")
    return {
        "keys": keys,
        "few_s": statistics.median(few["seconds"]),
        "many_s": statistics.median(many["seconds"]),
        "few_phases": few["phases"],
        "many_phases": many["phases"],
        "few_memory": few["own_memory"],
        "many_memory": many["own_memory"],
        "local_bytes": many["local_bytes"],
        "snapshot_bytes": sum(int(each["snapshot_bytes"]) for each in snapshot["subtasks"]),
        "snapshot_s": subtask_seconds(snapshot, "snapshot_ms"),
        "restore_s": restore,
        "to_three": subtask_seconds(three, "open_ms") / restore,
        "to_two": subtask_seconds(two, "open_ms") / restore,
    }


def with_rows(backend: str, rows: int, buffer: str, frames: int) -> dict[str, Any]:
    """Return the figures of one micro-batch of many rows."""
    touched = rows * 43 // 100
    limits = (
        f"spark.millpond.buffer.max-bytes={buffer}",
        f"spark.sql.execution.arrow.maxRecordsPerBatch={frames}",
    )
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        root = Path(name)
        before = run_step(backend, root, *limits)
        found = run_step(backend, root, *limits, rows=rows, keys=rows, touched=touched)
    return {
        "rows": rows,
        "buffer": buffer,
        "frames": frames,
        "seconds": found["seconds"][0],
        "own_memory_before": before["own_memory"],
        "own_memory": found["own_memory"],
    }


def megabytes(size: float) -> str:
    """Format a number of bytes in MB."""
    return f"{size / (1 << 20):,.0f} MB"


def phases_told(phases: dict[str, float]) -> str:
    """Format a subtask's phases."""
    return ", ".join(f"{took:.0f}" for took in phases.values()) + " ms"


OF_KEYS: dict[str, Callable[[dict[str, Any]], str]] = {
    "keys": lambda r: f"{r['keys']:,}",
    f"a batch with {FEW:,} keys": lambda r: f"{r['few_s']:.2f} s",
    "a batch with all keys": lambda r: f"{r['many_s']:.2f} s",
    "all / few": lambda r: f"{r['many_s'] / r['few_s']:.2f}",
    "a subtask's opening, rows, snapshot, few keys": lambda r: phases_told(r["few_phases"]),
    "a subtask's opening, rows, snapshot, all keys": lambda r: phases_told(r["many_phases"]),
    "a worker's own memory, few keys": lambda r: megabytes(r["few_memory"]),
    "a worker's own memory, all keys": lambda r: megabytes(r["many_memory"]),
    "local copies on disk": lambda r: megabytes(r["local_bytes"]),
    "whole snapshot": lambda r: megabytes(r["snapshot_bytes"]),
    "whole snapshot, subtasks together": lambda r: f"{r['snapshot_s']:.1f} s",
    "restore, subtasks together": lambda r: f"{r['restore_s']:.1f} s",
    "rescale 2 to 3 / restore": lambda r: f"{r['to_three']:.2f}",
    "rescale 3 to 2 / restore": lambda r: f"{r['to_two']:.2f}",
}
"""The rows of the table of many keys."""

OF_ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "backend": lambda r: r["backend"],
    "buffer.max-bytes": lambda r: r["buffer"],
    "rows of a frame": lambda r: f"{r['frames']:,}",
    "rows": lambda r: f"{r['rows']:,}",
    "s": lambda r: f"{r['seconds']:.1f}",
    "memory before": lambda r: megabytes(r["own_memory_before"]),
    "memory": lambda r: megabytes(r["own_memory"]),
}
"""The columns of the table of one large micro-batch."""


def show(keys: dict[str, dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Print the tables."""
    table = Table("", *keys, title="Many keys")
    for name, tell in OF_KEYS.items():
        table.add_row(name, *map(tell, keys.values()))
    CONSOLE.print(table)
    table = Table(*OF_ROWS, title="A large micro-batch")
    for row in rows:
        table.add_row(*(tell(row) for tell in OF_ROWS.values()))
    CONSOLE.print(table)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=48)
    parser.add_argument("--warm-up", type=int, default=24)
    parser.add_argument("--backends", default="rocksdb,lmdb")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    backends = options.backends.split(",")
    keys = {b: with_keys(b, options.keys, options.batches, options.warm_up) for b in backends}
    rows = [
        {"backend": backend, **with_rows(backend, options.rows, *limits)}
        for backend in backends
        for limits in LIMITS
    ]
    show(keys, rows)
    (options.output / "large.json").write_text(json.dumps({"keys": keys, "rows": rows}, indent=1))
    CONSOLE.print(f"Written: {options.output}/large.json")


if __name__ == "__main__":
    main()
