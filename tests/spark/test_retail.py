"""The retail job on real data: killed, restarted, and exact."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import millpond as mp
import pytest
from millpond.checkpoint import KeyedStateHandle
from millpond.spark import create_savepoint, subtask_metrics
from millpond.spark.metrics.batch_metrics import read_pointers

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
PATIENCE_S = 240


class Job:
    """The retail job in a process group of its own."""

    def __init__(self, backend, root, data, *options):
        command = [sys.executable, str(HERE / "retail_job.py"), backend, str(root), str(data)]
        self.root = root
        with (root / "job.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, start_new_session=True
            )

    def wait_until(self, condition, what):
        """Poll until a condition of the checkpoint holds; fail if the job ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited too long for {what}:\n{self.tail()}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)
                pytest.fail(f"ended before {what}:\n{self.tail()}")

    def wait_in_batch(self, batch):
        """Wait until a batch has begun and is not committed yet."""
        self.wait_until(
            lambda: last(self.root, "offsets") >= batch > last(self.root, "commits"),
            f"batch {batch}",
        )

    def kill(self):
        """SIGKILL the driver, its JVM and its workers at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_a_worker(self):
        """SIGKILL one Python worker; says which."""
        workers: list[int] = []

        def found():
            workers[:] = python_workers(self.process.pid)
            return bool(workers)

        self.wait_until(found, "a Python worker")
        os.kill(workers[0], signal.SIGKILL)
        return workers[0]

    def finish(self):
        """Wait for the end of the job."""
        assert self.process.wait(PATIENCE_S) == 0, self.tail()

    def tail(self):
        """The end of the job's log."""
        return (self.root / "job.log").read_text(errors="replace")[-4000:]


def last(root, folder):
    """The highest batch in a folder of the checkpoint, -1 where there is none."""
    names = (path.name for path in (root / "checkpoint" / folder).glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def python_workers(session_id):
    """The processes that Spark's Python daemon of a session has forked."""
    parents, daemons = {}, set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(stat[3]) == session_id and b"pyspark.daemon" in command:
            parents[int(entry.name)] = int(stat[1])
    daemons = {parent for parent in parents.values() if parent in parents}
    return sorted(pid for pid, parent in parents.items() if parent in daemons)


@pytest.fixture(scope="module")
def expected(spark, retail):
    """The result of a batch computation."""
    import retail_job

    rows = spark.read.schema(retail_job.SCHEMA).option("header", True).csv(str(retail))
    rows.createOrReplaceTempView("retail")
    lines = Counter(
        (row.CustomerID, row.InvoiceNo, row.StockCode, row.Quantity)
        for row in rows.select("CustomerID", "InvoiceNo", "StockCode", "Quantity").collect()
    )
    totals = {
        row.CustomerID: (row.n, row.spent)
        for row in spark.sql(
            "select CustomerID, count(*) as n, sum(Quantity * UnitPrice) as spent from retail "
            "where CustomerID is not null group by CustomerID"
        ).collect()
    }
    pieces = {
        (row.CustomerID, row.StockCode): row.q
        for row in spark.sql(
            "select CustomerID, StockCode, sum(Quantity) as q from retail "
            "where CustomerID is not null group by CustomerID, StockCode"
        ).collect()
    }
    return lines, totals, pieces


@pytest.fixture(scope="module", autouse=True)
def _import_job():
    sys.path.insert(0, str(HERE))
    yield
    sys.path.remove(str(HERE))


def check_output(spark, roots, expected):
    """No line is lost or doubled, running counts have no gap, the last totals are right."""
    lines, totals, _ = expected
    rows = [row for root in roots for row in spark.read.parquet(str(root / "output")).collect()]
    assert Counter((r.customer, r.invoice, r.stock, r.quantity) for r in rows) == lines
    counts = Counter((row.customer, row.lines) for row in rows if row.customer is not None)
    assert set(counts.values()) == {1}
    final = {
        row.customer: (row.lines, row.spent)
        for row in rows
        if row.customer is not None and row.lines == totals[row.customer][0]
    }
    assert final == totals


def check_state(spark, root, expected):
    """The committed state holds the totals and the pieces of each article."""
    from retail_job import Decimal

    _, totals, pieces = expected
    storage = mp.checkpoint_storage((root / "snapshots").as_uri())
    pointers = read_pointers(spark, str(root / "checkpoint"))
    handles = [KeyedStateHandle.from_json(pointer.handle, storage) for pointer in pointers]
    with mp.open_keyed_backend("heap", key_type=str, restore=handles) as backend:
        spent = backend.get_partitioned_state(mp.ValueStateDescriptor("spent", Decimal))
        found_pieces = backend.get_partitioned_state(mp.MapStateDescriptor("pieces", str, int))
        found, found_by_article = {}, {}
        for key in backend.keys("spent"):
            backend.set_current_key(key)
            found[key] = spent.value()
            found_by_article.update({(key, code): q for code, q in found_pieces.items()})
    assert found == {customer: total for customer, (_, total) in totals.items()}
    assert found_by_article == pieces


@pytest.mark.parametrize(
    "backend",
    [
        "rocksdb",
        # One and a half minutes each; the crash matrix covers all three in every run.
        pytest.param("heap", marks=pytest.mark.soak),
        pytest.param("lmdb", marks=pytest.mark.soak),
    ],
)
def test_killed_and_restarted_it_is_exact(spark, retail, expected, tmp_path, backend):
    """After SIGKILL of the driver in a batch and of a worker, output and state are exact."""
    job = Job(backend, tmp_path, retail)
    job.wait_in_batch(2)
    job.kill()
    killed_at = last(tmp_path, "commits")
    assert 0 <= killed_at < 4
    job = Job(backend, tmp_path, retail)
    job.wait_in_batch(killed_at + 2)
    killed = job.kill_a_worker()
    job.wait_until(lambda: last(tmp_path, "commits") >= killed_at + 3, "batches after the kill")
    assert killed not in python_workers(job.process.pid)
    job.kill()
    Job(backend, tmp_path, retail, "--to-the-end").finish()
    check_output(spark, [tmp_path], expected)
    check_state(spark, tmp_path, expected)


def moved(spark, root):
    """A savepoint of a stopped job."""
    target = root / "savepoint"
    snapshots = (root / "snapshots").as_uri()
    create_savepoint(spark, str(root / "checkpoint"), target, snapshots=snapshots)
    return ["--restore", str(target)]


@pytest.mark.soak
def test_rescaled_and_moved_it_is_exact(spark, retail, expected, tmp_path):
    """Rescaled from 2 to 5 to 3 subtasks, moved from heap to LMDB to RocksDB, killed on the way."""
    files = sorted(retail.glob("*.csv.gz"))
    parts = [files[:70], files[70:120], files[120:]]
    roots = [tmp_path / name for name in ("heap", "lmdb", "rocksdb")]
    for root, part in zip(roots, parts, strict=True):
        (root / "data").mkdir(parents=True)
        for file in part:
            (root / "data" / file.name).symlink_to(file)
    heap, lmdb, rocksdb = roots
    few = ["--files", "10"]
    job = Job("heap", heap, heap / "data", *few)
    job.wait_in_batch(2)
    job.kill()
    job = Job("heap", heap, heap / "data", *few, "--parallelism", "5")
    job.wait_in_batch(last(heap, "commits") + 2)
    job.kill()
    Job("heap", heap, heap / "data", *few, "--parallelism", "3", "--to-the-end").finish()
    job = Job("lmdb", lmdb, lmdb / "data", *few, *moved(spark, heap))
    job.wait_in_batch(2)
    job.kill()
    Job("lmdb", lmdb, lmdb / "data", *few, "--to-the-end", *moved(spark, heap)).finish()
    Job("rocksdb", rocksdb, rocksdb / "data", "--to-the-end", *moved(spark, lmdb)).finish()
    check_output(spark, roots, expected)
    check_state(spark, rocksdb, expected)


def test_two_executors_are_exact_and_keep_their_subtasks(spark, retail, expected, tmp_path):
    """On two executors the job is exact, and each subtask stays where its state is."""
    job = Job(
        "rocksdb", tmp_path, retail, "--to-the-end", "--files", "24",
        "--master", "local-cluster[2,1,1024]",
    )  # fmt: skip
    job.finish()
    check_output(spark, [tmp_path], expected)
    check_state(spark, tmp_path, expected)
    homes: dict[int, list[tuple[object, object]]] = {}
    for batch in range(last(tmp_path, "commits") + 1):
        for entry in subtask_metrics(spark, str(tmp_path / "checkpoint"), batch):
            where = (entry.metrics["executor"], entry.metrics["source"])
            homes.setdefault(entry.first_group, []).append(where)
    assert len(homes) == 2
    for visits in homes.values():
        stayed = [source for _, source in visits[1:] if source == "local"]
        assert len(stayed) >= len(visits) - 2, visits
    assert len({visits[-1][0] for visits in homes.values()}) == 2
