"""Run one step of the large benchmark in a process of its own and print it as one line of JSON.

A step adds one file per micro-batch to the input folder and runs the folder's query over them.
Steps share nothing but the folder. Each step has its own session, workers and, if requested,
directory of local copies, so that it restores the state of the step before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
from pathlib import Path
from typing import Any

import cases
import psutil
from cases import session
from millpond.spark import subtask_metrics
from one_case import add_batch_options, run_query, write_batches
from own_process import tell
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from typing_extensions import override

PHASES = ("open_ms", "process_ms", "snapshot_ms")
SAMPLED = 0.2
"""Seconds between two looks at the workers' memory."""


class WorkerMemory(threading.Thread):
    """The largest memory of a Python worker so far, in bytes.

    Attributes:
        own: without pages of files such as LMDB's map.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own = 0
        self._over = threading.Event()

    @override
    def run(self) -> None:
        """Measure all workers until ``stop``."""
        while not self._over.wait(SAMPLED):
            self.look()

    def look(self) -> None:
        """Measure all workers once."""
        for process in psutil.Process().children(recursive=True):
            self._look(process)

    def _look(self, process: psutil.Process) -> None:
        try:
            if "python" in process.name():
                found = process.memory_info()
                self.own = max(self.own, found.rss - found.shared)
        except psutil.NoSuchProcess:
            return

    def stop(self) -> None:
        """Stop."""
        self._over.set()
        self.join()


def bytes_under(folder: Path) -> int:
    """Return the disk space of all files in a folder."""
    found = (path.stat() for path in folder.rglob("*") if path.is_file())
    return sum(each.st_blocks * 512 for each in found)


def add_input(root: Path, options: argparse.Namespace) -> None:
    """Write the step's files after those of earlier steps."""
    fresh = root / "fresh"
    fresh.mkdir()
    (root / "input").mkdir(exist_ok=True)
    sizes = (options.grow, options.keys, options.rows, options.touched, options.batches)
    write_batches(fresh, *sizes)
    before = len(list((root / "input").iterdir()))
    for at, path in enumerate(sorted(fresh.iterdir())):
        # The source takes files by their times, which it reads in ms.
        os.utime(path, (before + at, before + at))
        path.rename(root / "input" / f"{before + at:05d}.parquet")
    fresh.rmdir()


def phases(spark: SparkSession, checkpoint: str, batches: list[int]) -> dict[str, float]:
    """Return the milliseconds of each phase: medians over batches of the subtasks' means."""
    found: list[list[dict[str, Any]]] = [
        [each.metrics for each in subtask_metrics(spark, checkpoint, at)] for at in batches
    ]
    return {
        phase: statistics.median(statistics.mean(m[phase] for m in each) for each in found)
        for phase in PHASES
    }


def step(options: argparse.Namespace) -> dict[str, Any]:
    """Run the step."""
    root = options.folder
    add_input(root, options)
    local = root / f"local-{options.copies}"
    conf = [
        f"spark.millpond.local.dir={local}",
        f"spark.millpond.parallelism={options.parallelism}",
        f"spark.sql.shuffle.partitions={options.parallelism}",
        *options.conf,
    ]
    spark = session(options.case, root / "snapshots", conf)
    memory = WorkerMemory()
    memory.start()
    query = run_query(spark, options.case, "string", root)
    memory.stop()
    progress = [entry for entry in query.recentProgress if entry.numInputRows]
    measured = progress[len(progress) - options.batches + options.warm_up :]
    checkpoint = str(root / "checkpoint")
    report = {
        **vars(options),
        "seconds": [entry.durationMs["triggerExecution"] / 1000 for entry in measured],
        "subtasks": [each.metrics for each in subtask_metrics(spark, checkpoint)],
        "phases": phases(spark, checkpoint, [entry.batchId for entry in measured]),
        "own_memory": memory.own,
        "local_bytes": bytes_under(local),
    }
    spark.stop()
    return report


def main() -> None:
    """Run the step that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", default="a", help="a name for the directory of local copies")
    parser.add_argument("--parallelism", type=int, default=2)
    add_batch_options(parser)
    parser.set_defaults(batches=1, warm_up=0)
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(cases)  # type: ignore[no-untyped-call]
    tell(step(options))


if __name__ == "__main__":
    main()
