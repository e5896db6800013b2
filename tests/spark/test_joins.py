"""Ready-made joins on Spark: streams next to Spark's own join, batches, columns, refusals."""

import random

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by, subtask_metrics
from pyspark.sql import functions as F

from tests.spark.streaming import Files, run

pytestmark = pytest.mark.spark
SECOND = 1000
DAY = 86_400 * SECOND
FAR = 10 * DAY


class Inputs:
    """Two streams of files with event times; each call of ``add`` makes a micro-batch."""

    def __init__(self, spark, folder):
        self.files = [
            Files(spark, folder / "left", "k string, ms bigint, id bigint"),
            Files(spark, folder / "right", "k string, ms2 bigint, name string"),
        ]

    def add(self, lefts, rights):
        self.files[0].add(*lefts)
        self.files[1].add(*rights)

    def streams(self, delay="5 seconds"):
        left, right = (files.stream() for files in self.files)
        left = left.withColumn("at", F.timestamp_millis("ms")).withWatermark("at", delay)
        right = right.withColumn("at2", F.timestamp_millis("ms2")).withWatermark("at2", delay)
        return left, right


def drawn(seed, batch, count=40):
    """Return rows of both streams, out of order by less than the watermark's delay."""
    rng = random.Random(f"{seed} {batch}")

    def rows(kind):
        for number in range(count):
            ms = (
                DAY
                + batch * 20 * SECOND
                + rng.randrange(20 * SECOND)
                - rng.randrange(2) * 2 * SECOND
            )
            name = batch * count + number
            yield rng.choice("abcde"), ms, name if kind == "left" else f"r{name}"

    return list(rows("left")), list(rows("right"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_a_full_join_next_to_sparks(spark, job_conf, tmp_path, backend):
    """A full interval join with a restart has the rows of Spark's full join of the same streams."""
    job_conf(state_backend=backend, parallelism=2)
    inputs = Inputs(spark, tmp_path)
    left, right = inputs.streams()
    ours = key_by(left, "k").interval_join(
        key_by(right, "k"), lower=-3 * SECOND, upper=1 * SECOND, how="full", uid="joined"
    )
    assert ours.columns == ["k", "ms", "id", "at", "ms2", "name", "at2"]
    near = right.at2.between(
        left.at - F.expr("interval 3 second"), left.at + F.expr("interval 1 second")
    )
    theirs = left.join(right, (left.k == right.k) & near, "full")
    theirs = theirs.select(
        F.coalesce(left.k, right.k).alias("k"), "ms", "id", "at", "ms2", "name", "at2"
    )
    for batch in range(2):
        inputs.add(*drawn(1, batch))
    run(ours, tmp_path)
    for batch in range(2, 4):
        inputs.add(*drawn(1, batch))
    for far in (FAR, 2 * FAR):
        inputs.add([("left", far, -1)], [("right", far, "far")])
    run(ours, tmp_path)
    run(theirs, tmp_path, name="theirs")
    wanted = [
        row for row in output_of(spark, tmp_path, "theirs") if row[0] not in ("left", "right")
    ]
    found = [row for row in output_of(spark, tmp_path, "query") if row[0] not in ("left", "right")]
    assert found == wanted
    assert {row[2] is None for row in found} == {row[5] is None for row in found} == {True, False}


def output_of(spark, tmp_path, name):
    """Return the rows that a query has written, sorted with nulls."""
    rows = spark.read.parquet(str(tmp_path / name / "output")).collect()
    return sorted(map(tuple, rows), key=repr)


def test_late_rows_and_the_latest_row(spark, job_conf, tmp_path):
    """An as-of join puts out rows with the latest right row, and late left rows to a side output."""
    job_conf(state_backend="lmdb", parallelism=2)
    inputs = Inputs(spark, tmp_path)
    left, right = inputs.streams("0 seconds")
    joined = key_by(left, "k").as_of_join(key_by(right, "k"), how="left", uid="as-of")
    both = joined.with_side_outputs(mp.LATE_LEFT)
    inputs.add([("a", 10_000, 1), ("a", 30_000, 2)], [("a", 5_000, "x"), ("b", 40_000, "y")])
    inputs.add([("a", 20_000, 3), ("b", 41_000, 4)], [("a", 29_000, "z"), ("b", 41_000, "w")])
    inputs.add([("c", FAR, 5)], [("c", FAR, "far")])
    inputs.add([("c", 2 * FAR, 6)], [("c", 2 * FAR, "far")])
    run(both, tmp_path)
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    main = written.where("late_left is null and k != 'c'").select("id", "name")
    assert sorted(map(tuple, main.collect())) == [(1, "x"), (2, "x"), (4, "w")]
    late = written.where("late_left is not null").select("late_left.*")
    assert late.columns == left.columns
    assert [row.id for row in late.collect()] == [3]
    metrics = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert all("numLateRecords" in each.metrics for each in metrics)


def test_late_right_rows_have_the_right_columns(spark, job_conf):
    """The side output of late right rows has the columns of the right input."""
    job_conf(state_backend="heap")
    left = spark.createDataFrame([("a", 1)], "k string, s bigint").withColumn(
        "at", F.timestamp_seconds("s")
    )
    right = spark.createDataFrame([("a", 2, "x")], "k string, s2 bigint, name string")
    right = right.withColumn("at2", F.timestamp_seconds("s2"))
    joined = key_by(left, "k").interval_join(
        key_by(right, "k"), lower=0, upper=SECOND, uid="j", event_time="at", right_event_time="at2"
    )
    assert [tuple(row)[:2] + tuple(row)[3:5] for row in joined.collect()] == [("a", 1, 2, "x")]
    late = joined.side_output(mp.LATE_RIGHT)
    assert late.columns == right.columns
    assert late.collect() == []
    assert joined.side_output(mp.LATE_LEFT).columns == left.columns


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_plain_dataframes(spark, job_conf, mode):
    """All joins run over plain DataFrames, in both execution modes; keys may be expressions."""
    job_conf(state_backend="rocksdb", parallelism=2)
    rows = [("a", 10, 1), ("A", 20, 2), ("b", 10, 3)]
    left = spark.createDataFrame(rows, "k string, s bigint, id bigint")
    left = left.withColumn("at", F.timestamp_seconds("s"))
    right = spark.createDataFrame(
        [("a", 8, "x"), ("a", 20, "y"), ("c", 9, "z")], "who string, s2 bigint, name string"
    )
    right = right.withColumn("at2", F.timestamp_seconds("s2"))
    lower = key_by(left, F.lower("k").alias("lower"))
    who = key_by(right, "who")
    options = {"execution_mode": mode, "event_time": "at"}
    joined = lower.interval_join(
        who, lower=-2 * SECOND, upper=0, how="full", uid="i", right_event_time="at2", **options
    )
    assert joined.columns == ["k", "s", "id", "at", "who", "s2", "name", "at2"]
    found = sorted((row.id or 0, row.name) for row in joined.collect())
    assert found == [(0, "z"), (1, "x"), (2, "y"), (3, None)]
    as_of = lower.as_of_join(who, how="left", uid="a", right_event_time="at2", **options)
    assert sorted((row.id, row.name) for row in as_of.collect()) == [(1, "x"), (2, "y"), (3, None)]
    table = who.lookup_join(
        lower, how="left", uid="l", execution_mode=mode, event_time="at2", table_event_time="at"
    )
    assert sorted((row.name, row.id) for row in table.collect()) == [
        ("x", 2),
        ("y", 2),
        ("z", None),
    ]


def test_a_lookup_join_of_streams(spark, job_conf, tmp_path):
    """In a micro-batch the table's rows come first; rows of earlier batches keep their result."""
    job_conf(state_backend="heap", parallelism=2)
    orders = Files(spark, tmp_path / "orders", "k string, id bigint")
    table = Files(spark, tmp_path / "table", "k string, name string")
    joined = key_by(orders.stream(), "k").lookup_join(
        key_by(table.stream(), "k"), how="left", uid="lookup"
    )
    assert joined.columns == ["k", "id", "name"]
    orders.add(("a", 1), ("b", 2))
    table.add(("a", "x"))
    orders.add(("a", 3), ("b", 4))
    table.add(("a", "y"), ("b", "z"))
    run(joined, tmp_path)
    assert output_of(spark, tmp_path, "query") == [
        ("a", 1, "x"), ("a", 3, "y"), ("b", 2, None), ("b", 4, "z"),
    ]  # fmt: skip


def test_refusals(spark, job_conf, tmp_path):
    """Wrong arguments, missing event times and missing watermarks are refused before the query."""
    job_conf(state_backend="heap")
    left = spark.createDataFrame([("a", 1)], "k string, n bigint")
    left = left.withColumn("at", F.timestamp_seconds("n"))
    right = left.withColumnsRenamed({"n": "m", "at": "then"})
    near = {"lower": 0, "upper": 5, "uid": "j"}
    mine, theirs = key_by(left, "k"), key_by(right, "k")
    with pytest.raises(errors.ConfigError, match=r"(?i)'?n'?.*both inputs have a column"):
        mine.interval_join(mine, **near, event_time="at", right_event_time="at")
    with pytest.raises(errors.ConfigError, match="event_time.*joins by event time need it"):
        mine.interval_join(theirs, **near, right_event_time="then")
    with pytest.raises(errors.ConfigError, match="second input"):
        mine.as_of_join(theirs, uid="j", event_time="at")
    with pytest.raises(errors.ConfigError, match="how.*inner, left"):
        mine.as_of_join(theirs, uid="j", how="full")
    with pytest.raises(errors.ArgumentTypeError, match="right.*KeyedStream"):
        mine.interval_join(right, **near)
    with pytest.raises(errors.ConfigError, match="keys"):
        mine.lookup_join(key_by(right, "m"), uid="j")
    for connected, other in ((mine.connect(right), theirs), (mine, theirs.connect(left))):
        with pytest.raises(errors.ConfigError, match="connected to another one already"):
            connected.lookup_join(other, uid="j")
    (tmp_path / "input").mkdir()
    streams = [
        key_by(spark.readStream.schema(df.schema).json(str(tmp_path / "input")), "k")
        for df in (left, right)
    ]
    with pytest.raises(errors.NoWatermarkError, match="joins by event time need a watermark"):
        streams[0].interval_join(streams[1], **near, event_time="at", right_event_time="then")
