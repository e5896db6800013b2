"""The retail job on real data is killed and restarted, and its result is exact."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from functools import cache, partial
from pathlib import Path

import millpond as mp
import pytest
from millpond.snapshots.handles import KeyedStateHandle
from millpond.spark import create_savepoint, subtask_metrics
from millpond_spark.plan.pointer import read_pointers

from tests.spark.retail_runs import Job, check_output, last, python_workers, tuples

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
FEW = ("--files", "10")
"""The days per batch, which makes eight batches."""


@pytest.fixture(scope="module")
def months(retail, tmp_path_factory):
    """The folder with the first half of the data."""
    folder = tmp_path_factory.mktemp("months")
    for file in sorted(retail.glob("*.csv.gz"))[:80]:
        (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="module")
def expected(spark):
    """Return a function that computes the expected result of a folder by batch SQL."""
    return cache(partial(computed, spark))


def computed(spark, folder):
    """Return the lines, each customer's totals, and the pieces of each article."""
    from tests.spark import retail_job

    rows = spark.read.schema(retail_job.SCHEMA).option("header", True).csv(str(folder))
    rows.createOrReplaceTempView("retail")
    lines = Counter(tuples(rows.select("CustomerID", "InvoiceNo", "StockCode", "Quantity")))
    totals = {
        customer: (n, spent)
        for customer, n, spent in tuples(
            spark.sql(
                "select CustomerID, count(*) as n, sum(Quantity * UnitPrice) as spent from retail "
                "where CustomerID is not null group by CustomerID"
            )
        )
    }
    pieces = {
        (customer, stock): q
        for customer, stock, q in tuples(
            spark.sql(
                "select CustomerID, StockCode, sum(Quantity) as q from retail "
                "where CustomerID is not null group by CustomerID, StockCode"
            )
        )
    }
    return lines, totals, pieces


def check_state(spark, root, expected):
    """Check that the committed state has the totals and the pieces of each article."""
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


@pytest.mark.long
@pytest.mark.parametrize(
    "backend",
    [
        "rocksdb",
        # One and a half minutes each; the crash matrix covers all three in every run.
        pytest.param("heap", marks=pytest.mark.soak),
        pytest.param("lmdb", marks=pytest.mark.soak),
    ],
)
def test_killed_and_restarted_it_is_exact(spark, months, expected, tmp_path, backend):
    """After SIGKILL of the driver in a batch, and of a worker, output and state are exact."""
    job = Job(backend, tmp_path, months, *FEW)
    job.wait_in_batch(2)
    job.kill()
    killed_at = last(tmp_path, "commits")
    assert 0 <= killed_at < 4
    job = Job(backend, tmp_path, months, *FEW)
    job.wait_in_batch(killed_at + 2)
    killed = job.kill_a_worker()
    job.wait_until(lambda: last(tmp_path, "commits") >= killed_at + 3, "batches after the kill")
    assert killed not in python_workers(job.process.pid)
    job.kill()
    Job(backend, tmp_path, months, *FEW, "--to-the-end").finish()
    check_output(spark, [tmp_path], expected(months))
    check_state(spark, tmp_path, expected(months))


def moved(spark, root):
    """Return a savepoint of a stopped job."""
    target = root / "savepoint"
    snapshots = (root / "snapshots").as_uri()
    create_savepoint(spark, str(root / "checkpoint"), target, snapshots=snapshots)
    return ["--restore", str(target)]


@pytest.mark.soak
def test_rescaled_and_moved_it_is_exact(spark, retail, expected, tmp_path):
    """Rescaled from 2 to 5 to 3 subtasks, moved from heap to LMDB to RocksDB, and killed, the job is exact."""
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
    check_output(spark, roots, expected(retail))
    check_state(spark, rocksdb, expected(retail))


@pytest.mark.long
def test_two_executors_are_exact_and_keep_their_subtasks(spark, months, expected, tmp_path):
    """On two executors the job is exact, and each subtask remains on the executor with its state."""
    job = Job(
        "rocksdb", tmp_path, months, *FEW, "--to-the-end",
        "--master", "local-cluster[2,1,1024]",
    )  # fmt: skip
    job.finish()
    check_output(spark, [tmp_path], expected(months))
    check_state(spark, tmp_path, expected(months))
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
