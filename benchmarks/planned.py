"""Compare `millpond plan` with measured runs.

A running total, and a job that keeps 200 random bytes per key, run on each backend with two
subtasks. The table shows the plan next to the measurement: rows per second, memory and disk, bytes
of snapshots, and the longest restore by workers without local copies. Another case counts the
requests to an S3 server on loopback, with few retained checkpoints, so that files are deleted. Each
case has a process of its own.

After a change of the model, `--again` compares the last measurements with the new plans.

Usage: planned.py [--keys 300000] [--batches 40] [--only "rocksdb totals"] [--again]
                  [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import attrs
import millpond as mp
from cases import input_schema, millpond_job, session
from large_case import WorkerMemory, bytes_under
from millpond.snapshots.catalog import read_catalog
from millpond.spark import key_by, subtask_metrics
from millpond_cli.sizing.constants import Backend
from millpond_cli.sizing.model import Workload, plan_job, requests_per_batch, restore_seconds
from one_case import tell_measured, write_batches
from own_process import run_in_own_process
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table
from typing_extensions import override

BACKENDS: tuple[Backend, ...] = ("rocksdb", "lmdb", "heap")
SUBTASKS = 2
KEY_BYTES = len("customer-00000000")
WARM_UP = 50
CONSOLE = Console(width=120)
Figures = dict[str, dict[str, float]]


class Profiles(mp.KeyedProcessFunction):
    """A function that keeps 200 random bytes per key."""

    @override
    def open(self, context: mp.RuntimeContext) -> None:
        """Get the state."""
        self.profile = context.get_state(mp.ValueStateDescriptor("profile", bytes))

    @override
    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Replace the bytes."""
        before = self.profile.value()
        self.profile.update(os.urandom(200))
        yield row.customer, float(before is None)


def profiles_job(rows: DataFrame) -> DataFrame:
    """Return the job of 200 bytes per key."""
    schema = "customer string, is_new double"
    return key_by(rows, "customer").process(Profiles(), output=schema, uid="profiles")


@attrs.frozen
class Job:
    """A job, with the rows and changed keys of a batch, and with the sizes that a plan is given."""

    make: Any
    rows: int
    touched: int
    bytes_per_key: int
    compression: float


KINDS = {
    "totals": Job(millpond_job, 100_000, 43_000, KEY_BYTES + 8, 0.74),
    "profiles": Job(profiles_job, 40_000, 30_000, KEY_BYTES + 200, 1.0),
}
SMALL, SMALL_KEYS, RETAINED = Job(millpond_job, 1_000, 700, KEY_BYTES + 8, 0.74), 2_000, 5
"""The job whose requests are counted."""
INTERVAL = 10
"""The seconds between two batches, for the plan. The measured batches follow without a pause."""
CASES = (*(f"{b} {kind}" for kind in KINDS for b in BACKENDS), "requests")


class Local(WorkerMemory):
    """The largest memory of a worker, and the largest disk space of local copies."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.disk = 0
        self._folder = folder

    @override
    def look(self) -> None:
        super().look()
        with_files = self._folder.exists()
        self.disk = max(self.disk, bytes_under(self._folder) if with_files else 0)


def run(spark: SparkSession, job: Any, root: Path) -> StreamingQuery:
    """Run a job over all files that it has not read yet, one per micro-batch."""
    stream = spark.readStream.schema(input_schema("string")).option("maxFilesPerTrigger", 1)
    writer = job(stream.parquet(str(root / "input"))).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    query = cast(StreamingQuery, writer.trigger(availableNow=True).start())
    query.awaitTermination()
    return query


def add_files(root: Path, job: Job, keys: int, grow: int, count: int) -> None:
    """Write input files after those that exist."""
    folder = root / "input"
    folder.mkdir(exist_ok=True)
    at = len(list(folder.iterdir()))
    write_batches(folder, grow, keys, job.rows, job.touched, count, first=at)


def snapshot_bytes(root: Path) -> int:
    """Return the bytes of all snapshots' files."""
    return sum(path.stat().st_size for path in (root / "snapshots").rglob("*.snapshot"))


def deltas(root: Path) -> float:
    """Return the mean number of deltas that the newest snapshots of the subtasks consist of."""
    catalog = read_catalog(mp.checkpoint_storage((root / "snapshots").as_uri()))
    return statistics.mean(len(each.handles[-1].files) - 1 for each in catalog.subtasks)


def measured_job(
    backend: Backend, job: Job, options: argparse.Namespace, root: Path
) -> dict[str, float]:
    """Return the measured figures of a job."""
    keys, count = options.keys, options.batches
    spark = session(f"millpond-{backend}", root / "snapshots")
    spark.conf.set("spark.millpond.local.dir", str(root / "local"))
    add_files(root, job, keys, keys, WARM_UP)
    run(spark, job.make, root)
    before = snapshot_bytes(root)
    add_files(root, job, keys, 0, count)
    local = Local(root / "local")
    local.start()
    query = run(spark, job.make, root)
    local.stop()
    seconds = statistics.median(
        each.durationMs["triggerExecution"] / 1000
        for each in query.recentProgress[4:]
        if each.numInputRows
    )
    written = (snapshot_bytes(root) - before) / count
    behind = deltas(root)
    spark.conf.set("spark.millpond.local.dir", str(root / "other"))
    add_files(root, job, keys, 0, 1)
    run(spark, job.make, root)
    opened = [each.metrics for each in subtask_metrics(spark, str(root / "checkpoint"))]
    assert {each["source"] for each in opened} == {"snapshot"}, opened
    spark.stop()
    return {
        "rows per second": job.rows / seconds,
        "memory of a worker, MB": local.own / 1e6,
        "local disk, MB": local.disk / 1e6,
        "written per batch, kB": written / 1e3,
        "restore of a subtask, ms": max(float(str(each["open_ms"])) for each in opened),
        "deltas": behind,
        "keys": keys,
    }


def planned_job(backend: Backend, job: Job, found: dict[str, float]) -> dict[str, float]:
    """Return the planned figures of a job."""
    workload = Workload(
        rate=job.rows / INTERVAL,
        keys=found["keys"],
        bytes_per_key=job.bytes_per_key,
        batch=INTERVAL,
        backend=backend,
        touched=job.touched,
        parallelism=SUBTASKS,
        executor_cores=SUBTASKS,
        compression=job.compression,
        download=1e12,
    )
    plan = plan_job(workload)
    return {
        "rows per second": job.rows / plan.batch_seconds,
        "memory of a worker, MB": plan.worker_bytes / 1e6,
        "local disk, MB": plan.local_bytes / 1e6,
        "written per batch, kB": plan.written_per_day * INTERVAL / 86_400 / 1e3,
        "restore of a subtask, ms": restore_seconds(workload, SUBTASKS, found["deltas"]) * 1e3,
    }


def measured_requests(options: argparse.Namespace, root: Path) -> dict[str, float]:
    """Return the measured requests of a batch."""
    sys.path.append(str(Path(__file__).parent.parent))
    from tests import s3_server  # noqa: PLC0415 - the tests' own

    with s3_server.s3_server() as server, s3_server.heard_requests() as heard:
        server.make_bucket("bench")
        spark = session("millpond-rocksdb", root)
        for name, value in {
            "dir": "s3://bench/planned",
            "s3.endpoint": f"http://{server.address}",
            "s3.access-key": server.access_key,
            "s3.secret-key": server.secret_key,
            "retained": str(RETAINED),
        }.items():
            spark.conf.set(f"spark.millpond.checkpoint.{name}", value)
        add_files(root, SMALL, SMALL_KEYS, SMALL_KEYS, 3 * RETAINED)
        run(spark, SMALL.make, root)
        heard.clear()
        add_files(root, SMALL, SMALL_KEYS, 0, options.batches)
        run(spark, SMALL.make, root)
        count = len(heard) / options.batches
        spark.stop()
    return {"requests per batch": count}


def planned_requests() -> dict[str, float]:
    """Return the planned requests of a batch."""
    workload = Workload(
        rate=SMALL.rows / INTERVAL,
        keys=SMALL_KEYS,
        bytes_per_key=SMALL.bytes_per_key,
        batch=INTERVAL,
        touched=SMALL.touched,
        parallelism=SUBTASKS,
    )
    plan = plan_job(workload)
    wanted = requests_per_batch(SUBTASKS, plan.delta_bytes, plan.base_bytes, plan.cycle, RETAINED)
    return {"requests per batch": wanted}


def compared(case: str, found: dict[str, float]) -> Figures:
    """Return the planned figures of a case next to the measured ones."""
    if case == "requests":
        plan = planned_requests()
    else:
        backend, kind = case.split()
        plan = planned_job(cast(Backend, backend), KINDS[kind], found)
    return {name: {"plan": value, "measured": found[name]} for name, value in plan.items()}


def measured(case: str, options: argparse.Namespace, root: Path) -> dict[str, float]:
    """Return the measured figures of a case."""
    if case == "requests":
        return measured_requests(options, root)
    backend, kind = case.split()
    return measured_job(cast(Backend, backend), KINDS[kind], options, root)


def show(reports: dict[str, dict[str, float]]) -> None:
    """Print the plans next to the measurements."""
    table = Table("job", "figure", "plan", "measured", "measured / plan")
    for case, found in reports.items():
        for name, each in compared(case, found).items():
            quotient = each["measured"] / each["plan"] if each["plan"] else 1.0
            cells = (f"{each['plan']:,.1f}", f"{each['measured']:,.1f}", f"{quotient:.2f}")
            table.add_row(case, name, *cells)
    CONSOLE.print(table)


def main() -> None:
    """Run the cases; print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--again", action="store_true", help="plan again, without measuring")
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--case", help="run only this case, in this process")
    options = parser.parse_args()
    if options.case:
        tell_measured(lambda root: measured(options.case, options, root))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    target = options.output / "planned.json"
    reports = (
        json.loads(target.read_text())
        if (options.only or options.again) and target.exists()
        else {}
    )
    for case in () if options.again else options.only or CASES:
        given = {"case": case, "keys": options.keys, "batches": options.batches}
        reports[case] = run_in_own_process("planned.py", [], given)
        target.write_text(json.dumps(reports, indent=1))
    show(reports)


if __name__ == "__main__":
    main()
