"""Keys and entries of states in the metrics of Spark's subtasks, and in a query's progress."""

import millpond as mp
import pyarrow as pa
import pytest
from millpond.spark import SUBTASK_METRICS, key_by, subtask_metrics
from pyspark.sql import functions as F

from tests.spark.streaming import RUNNING, Running, run

pytestmark = pytest.mark.spark


class Frames(mp.VectorizedProcessFunction):
    """The sums of frames."""

    def open(self, context):
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int))

    def process_batch(self, rows, context):
        self.sum.update_many(context.keys, [1] * len(context.keys))
        return pa.table({"k": rows["k"], "rows": rows["n"], "sum": rows["n"]})


def at_least(entries, backend):
    """Return the numbers that a backend may report: RocksDB also counts overwritten entries."""
    return range(entries, entries + (40 if backend == "rocksdb" else 1))


@pytest.mark.parametrize(
    ("backend", "function"), [("heap", Running), ("lmdb", Running), ("rocksdb", Frames)]
)
def test_sizes_in_the_progress(spark, job_conf, files, tmp_path, backend, function):
    """Each batch reports the state's size; the progress has the sum over its subtasks."""
    job_conf(state_backend=backend, parallelism=2)
    files.add(*((f"k{n}", n) for n in range(40)))
    out = key_by(files.stream(), "k").process(function(), output=RUNNING, uid="sized")
    metrics = F.col("subtask_metrics.metrics")
    entries = F.coalesce(metrics["sum.entries"], metrics["sum.entries_estimate"])
    observed = [F.sum(entries).alias("entries"), F.sum(metrics["rows_in"]).alias("rows")]
    out = out.with_side_outputs(SUBTASK_METRICS).observe("sized", *observed)
    for batch in range(2):
        query = run(out, tmp_path)
        found = query.lastProgress["observedMetrics"]["sized"]
        assert found["rows"] == 40
        assert found["entries"] in at_least(40 + 20 * batch, backend)
        files.add(*((f"k{n}", n) for n in range(20, 60)))
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    assert written.where("subtask_metrics is null").count() == 80
    rows = written.where("subtask_metrics is not null").select("subtask_metrics.*").collect()
    assert sorted({(row.checkpoint_id, row.first_group) for row in rows}) == [
        (batch, group) for batch in (1, 2) for group in (0, 64)
    ]
    sizes = [
        each.metrics for each in subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    ]
    name = "sum.entries_estimate" if backend == "rocksdb" else "sum.entries"
    assert sum(each[name] for each in sizes) in at_least(60, backend)
    assert all(("sum.bytes" in each) == (backend == "lmdb") for each in sizes)
    assert all(("sum.bytes_estimate" in each) == (backend == "rocksdb") for each in sizes)
