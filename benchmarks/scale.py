"""Measure the cost of many subtasks on few state partitions, in the driver and in the workers.

Micro-batches of 10,000 rows of 4,300 keys run with 2 to 256 subtasks on two state partitions; one
case has 16 partitions. Each case has a process of its own, and the cases take turns, round by
round. Figures are means of processor time over the measured batches, so that other load on the
machine matters little.

Usage: scale.py [--rounds 1] [--batches 10] [--only "rocksdb 2 2"] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from breakdown_case import Sampler, stage_figures, stages_of
from cases import session
from millpond.spark import subtask_metrics
from one_case import run_query, tell_measured, write_batches
from own_process import run_in_own_process
from pyspark.sql import SparkSession
from rich.console import Console

CASES = (
    "rocksdb 2 2",
    "rocksdb 16 2",
    "rocksdb 64 2",
    "rocksdb 256 2",
    "rocksdb 16 16",
    "lmdb 64 2",
    "heap 64 2",
)
"""A backend, its subtasks and Spark's state partitions."""
ROWS, TOUCHED, KEYS = 10_000, 4_300, 100_000
MILLISECONDS = ("open_ms", "process_ms", "snapshot_ms")
CONSOLE = Console(width=130)


def new_files(folder: Path, since: float) -> list[Path]:
    """Return the files below a folder that are newer than a time, without checksums."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc")
    return [path for path in found if path.stat().st_mtime > since]


def processor_ms(spark: SparkSession, sampler: Any, batches: list[int]) -> dict[str, float]:
    """Return the mean processor time of batches: of the driver, the JVM's tasks, the workers."""
    first, last = (sampler.samples[number] for number in (batches[0], batches[-1]))
    count = len(batches) - 1
    stages = [stage_figures(stages_of(spark, number)) for number in batches[1:]]
    tasks = statistics.mean(
        figures["state_cpu"] + figures.get("input_cpu", 0.0) for figures in stages
    )
    jvm = (last["jvm"] - first["jvm"]) / count
    python = (last["python"] - first["python"]) / count
    return {"driver": max(jvm - tasks, 0.0), "tasks": tasks, "workers": python}


def restart_s(spark: SparkSession, case: str, root: Path, at: int) -> float:
    """Return the seconds that a start of the query takes before and after its only batch."""
    write_batches(root / "input", 0, KEYS, ROWS, TOUCHED, 1, first=at)
    started = time.perf_counter()
    query = run_query(spark, case, "string", root)
    batch = query.recentProgress[0].durationMs["triggerExecution"] / 1000
    return time.perf_counter() - started - batch


def measured(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Return the figures of a case."""
    backend, subtasks, partitions = options.case.split()
    case = f"millpond-{backend}"
    count = options.batches + options.warm_up
    (root / "input").mkdir()
    write_batches(root / "input", 0, KEYS, ROWS, TOUCHED, count)
    conf = [
        f"spark.millpond.parallelism={subtasks}",
        f"spark.sql.shuffle.partitions={partitions}",
        f"spark.millpond.local.dir={root / 'local'}",
        "spark.sql.streaming.minBatchesToRetain=100",
    ]
    spark = session(case, root / "snapshots", conf)
    sampler: Any = Sampler(spark)
    spark.streams.addListener(sampler)
    query = run_query(spark, case, "string", root)
    sampler.over.wait(60)
    progress = [entry for entry in query.recentProgress if entry.numInputRows][options.warm_up :]
    batches = [entry.batchId for entry in progress]
    checkpoint = root / "checkpoint"
    pointers = subtask_metrics(spark, str(checkpoint), batches[-1])
    begun = (checkpoint / "offsets" / str(batches[0])).stat().st_mtime
    written = new_files(checkpoint, begun)
    found = {
        **processor_ms(spark, sampler, batches),
        "batch": statistics.median(each.durationMs["triggerExecution"] for each in progress),
        "planning": statistics.median(each.durationMs["queryPlanning"] for each in progress),
        "subtask": statistics.mean(
            sum(float(str(each.metrics[name])) for name in MILLISECONDS) for each in pointers
        ),
        "files": len(written) / len(batches),
        "bytes": sum(path.stat().st_size for path in written) / len(batches),
        "layout": sum(path.stat().st_size for path in root.glob("snapshots/*/*/layout/*.json")),
        "restart": restart_s(spark, case, root, count),
    }
    spark.stop()
    return found


def mean_of(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean of each figure over the rounds."""
    return {name: statistics.mean(each[name] for each in rounds) for name in rounds[0]}


def main() -> None:
    """Run the cases in turns; print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--case", help="run only this case, in this process")
    options = parser.parse_args()
    if options.case:
        tell_measured(lambda root: measured(options, root))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    target = options.output / "scale.json"
    reports: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for case in options.only or CASES:
            given = {"case": case, "batches": options.batches, "warm-up": options.warm_up}
            reports.setdefault(case, []).append(run_in_own_process("scale.py", [], given))
            CONSOLE.print(case, {name: round(v, 1) for name, v in reports[case][-1].items()})
    known = json.loads(target.read_text()) if options.only and target.exists() else {}
    target.write_text(json.dumps(known | {case: mean_of(each) for case, each in reports.items()}))


if __name__ == "__main__":
    main()
