"""An operator's output in a union, and its input with similar columns, are not mixed up."""

import millpond as mp
import pyarrow as pa
import pytest
from millpond.errors import ConfigError
from millpond.spark import key_by, operator
from millpond_spark.plan.timing import watermark_column
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.spark.streaming import Files

OUT = "k string, n bigint"


class Total(mp.KeyedProcessFunction):
    """Function that keeps a running total by key."""

    def open(self, context):
        self.total = context.get_state(mp.ValueStateDescriptor("total", int, default=0))

    def process_element(self, row, context):
        self.total.update(self.total.value() + row.n)
        yield context.current_key, self.total.value()


class Same(mp.ProcessFunction):
    """Function that yields its rows."""

    def process_element(self, row, context):
        yield row.k, row.n


class Sizes(mp.VectorizedProcessFunction):
    """Function that yields the number of rows of each key."""

    def process_batch(self, rows, context):
        sizes = [len(positions) for _, positions in context.groups()]
        return pa.table({"k": [str(key) for key in context.keys], "n": sizes})


@pytest.fixture
def rows(spark, job_conf):
    """Return two hundred rows of twenty keys."""
    return spark.createDataFrame([(f"k{i % 20}", 1) for i in range(200)], OUT)


def made_of(rows, mode):
    """Return the output of an operator over rows."""
    if mode == "keyless":
        return operator(rows).process(Same(), output=OUT, uid="same")
    return key_by(rows, "k").process(Total(), output=OUT, uid="total", execution_mode=mode)


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["streaming", "batch", "keyless"])
def test_a_union_and_a_coalesce_keep_all_rows(spark, rows, mode):
    """A union or a coalesce changes Spark's partition numbers, but not the operator's subtasks."""
    expected = sorted(made_of(rows, mode).collect())
    assert len(expected) == 200
    three = spark.createDataFrame([("x", 0)] * 3, OUT)
    behind = three.union(made_of(rows, mode)).collect()
    assert sorted(row for row in behind if row.k != "x") == expected
    both = made_of(rows, mode).union(made_of(rows, mode)).collect()
    assert sorted(both) == sorted(expected * 2)
    assert sorted(made_of(rows, mode).coalesce(1).collect()) == expected


class Alarm(mp.KeyedProcessFunction):
    """Function with restored timers, which fire at the end of the rows."""

    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(7)
        yield context.current_key, row.n

    def on_timer(self, timestamp, context):
        yield context.current_key, -timestamp


@pytest.mark.sample(1)
@pytest.mark.parametrize("given", ["none", "one", "all"])
def test_restored_state_stays_with_its_subtask(spark, job_conf, tmp_path, given):
    """Subtasks without rows restore their own timers, also in a union."""
    keys = [f"k{at}" for at in range(8)]
    with mp.testing.KeyedOperatorHarness(Alarm(), key="k") as harness:
        for key in keys:
            harness.process({"k": key, "n": 0})
        harness.savepoint(tmp_path / "saved")
    job_conf(checkpoint_restore=tmp_path / "saved")
    number = {"none": 0, "one": 1, "all": 8}[given]
    rows = spark.createDataFrame([(key, 5) for key in keys[:number]], OUT)
    made = key_by(rows, "k").process(Alarm(), output=OUT, uid="operator")
    expected = sorted([(key, 5) for key in keys[:number]] + [(key, -7) for key in keys])
    three = spark.createDataFrame([("x", 0)] * 3, OUT)
    around = [made, made.coalesce(1), three.union(made), made.union(three), made.union(made)]
    found = [sorted(row for row in each.collect() if row.k != "x") for each in around]
    assert found == [*[expected] * 4, sorted(expected * 2)]


@pytest.mark.long
def test_a_null_beside_the_key_that_it_is_carried_as(spark, job_conf):
    """A vectorized function refuses a null key in any row."""
    job_conf(parallelism=1)
    for site in "abcdef":
        rows = spark.createDataFrame([(site, 0), (site, None)], "k string, n int").coalesce(1)
        made = key_by(rows, "k", "n").process(Sizes(), output=OUT, uid="sizes")
        with pytest.raises(PySparkException, match="NullKeyError"):
            made.collect()


def test_the_watermark_is_of_a_column_not_of_a_name(spark, tmp_path):
    """If two columns have the same name, the one with the watermark has the event times."""
    rows = Files(spark, tmp_path, "k string, ts timestamp, o timestamp").stream()
    rows = rows.withWatermark("ts", "1 second")
    rows = rows.select("k", F.col("o").alias("ts"), "ts", F.window("ts", "1 minute").alias("w"))
    assert watermark_column(rows.schema, "process") == 2


def test_a_watermark_of_a_window_alone_wants_a_column(spark, job_conf, tmp_path):
    """The struct of `window` has no event time; the error names a column that has."""
    rows = Files(spark, tmp_path, "k string, ts timestamp").stream()
    rows = rows.withWatermark("ts", "1 second")
    rows = rows.select("k", F.window("ts", "10 seconds").alias("w"))
    with pytest.raises(ConfigError, match=r"name one, for instance w\.end"):
        key_by(rows, "k").process(Total(), output=OUT, uid="times")
