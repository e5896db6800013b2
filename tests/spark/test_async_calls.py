"""Asynchronous functions on Spark: streams with restarts and rescales, failures, batches."""

import asyncio
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by, subtask_metrics
from millpond.spark import operator as without_keys

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

OUTPUT = "k string, rows bigint, sum bigint"
KEYS = ("ab", "cd", "ef", "gh")


class Summed(mp.KeyedAsyncFunction):
    """Counts before a call, and sums after it; the call of the key 'never' does not end."""

    timeout = timedelta(milliseconds=200)

    def __init__(self, together=1):
        self.together = together

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int, default=0))

    async def async_open(self):
        self.waiting = asyncio.Barrier(self.together)

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        n = yield self.ask(row.k, row.n)
        self.sum.update(self.sum.value() + n)
        yield row.k, self.count.value(), self.sum.value()

    async def ask(self, key, n):
        if n < 0:
            raise ValueError(f"{n} is negative")
        if key == "never":
            await asyncio.Event().wait()
        await self.waiting.wait()
        return n


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_a_stream(spark, job_conf, tmp_path, backend):
    """Calls of all keys overlap; the state continues after a restart with two subtasks."""
    files = Files(spark, tmp_path / "in")
    for start in range(2):
        job_conf(state_backend=backend, parallelism=1 + start)
        for batch in (2 * start, 2 * start + 1):
            files.add(*((key, batch * 10 + n) for n in range(3) for key in KEYS))
        function = Summed(1 if start else len(KEYS))
        out = key_by(files.stream(), "k").process(
            function, output=OUTPUT, uid="summed", order_by="n"
        )
        run(out, tmp_path)
    numbers = [batch * 10 + n for batch in range(4) for n in range(3)]
    sums = [(at + 1, sum(numbers[: at + 1])) for at in range(len(numbers))]
    assert output(spark, tmp_path) == sorted((key, *each) for key in KEYS for each in sums)


def test_dead_letters(spark, job_conf, tmp_path):
    """Failed and late calls are dead letters, without a trace in the state of later batches."""
    job_conf(state_backend="rocksdb", parallelism=1)
    files = Files(spark, tmp_path / "in")
    files.add(("a", 1), ("b", -2), ("never", 3), ("c", 4))
    files.add(("b", 5), ("a", 6))
    out = key_by(files.stream(), "k").process(
        Summed(), output=OUTPUT, uid="summed", on_error="side_output"
    )
    run(out.with_side_outputs(mp.DEAD_LETTERS), tmp_path)
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    main = written.where("dead_letters is null").drop("dead_letters")
    assert sorted(map(tuple, main.collect())) == [
        ("a", 1, 1),
        ("a", 2, 7),
        ("b", 1, 5),
        ("c", 1, 4),
    ]
    letters = written.where("dead_letters is not null").select("dead_letters.*").collect()
    found = sorted((row.key, row.row.n, row.error.partition(":")[0]) for row in letters)
    assert found == [("b", -2, "ValueError"), ("never", 3, "CallTimeoutError")]
    metrics = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert [each.metrics["rows_in"] for each in metrics] == [2]


def test_plain_dataframes(spark, job_conf):
    """Rows without keys overlap, and checks of output rows name the line; a timeout fails the job."""

    class Scores(mp.AsyncFunction):
        async def async_open(self):
            self.waiting = asyncio.Barrier(4)

        async def async_invoke(self, row):
            await self.waiting.wait()
            return [(row.k, len(row.k))] if row.n < 4 else [(row.k, "long")]

    job_conf(state_backend="heap", parallelism=1)
    df = spark.createDataFrame([(key, n) for n, key in enumerate(KEYS)], "k string, n bigint")
    given = {"output": "k string, score bigint", "uid": "scores"}
    found = without_keys(df).process(Scores(), **given)
    assert sorted(map(tuple, found.collect())) == [(key, 2) for key in KEYS]
    wrong = without_keys(df.selectExpr("k", "n + 4 AS n")).process(Scores(), **given)
    with pytest.raises(
        Exception, match=r"Scores.process_element failed.*test_async_calls.py, line"
    ):
        wrong.collect()
    late = spark.createDataFrame([("never", 1)], "k string, n bigint")
    out = key_by(late, "k").process(Summed(), output=OUTPUT, uid="late")
    with pytest.raises(Exception, match=r"'late', subtask 0, key 'never'.*longer than 0.2 s"):
        out.collect()
    with pytest.raises(errors.ConfigError, match="an asynchronous function"):
        key_by(df, "k").process(Summed(), output=OUTPUT, uid="x", execution_mode="batch")
