"""Windows on Spark equal Spark's own windows where both have the same rules; late rows."""

import random
from typing import NamedTuple

import pytest
from millpond import errors, windows
from millpond.spark import key_by
from pyspark.sql import functions as F

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

SUMS = "k string, start bigint, end bigint, n bigint"
MINUTE = 60_000


def add(a, b):
    return a + b


@pytest.fixture
def events(spark, tmp_path):
    """Write six files with rows out of order, some of them late."""
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    shuffle = random.Random(3)
    for part in range(6):
        rows = []
        for n in range(120):
            second = part * 600 + shuffle.randrange(-900, 600)
            rows.append((shuffle.choice("abcdefgh"), 100_000 + second, n))
        files.add(*rows)
    return files


@pytest.fixture
def monkeypatch_conf(spark):
    """Set a key of Spark for one test."""
    before = {}

    def set_conf(key, value):
        before[key] = spark.conf.get(key)
        spark.conf.set(key, value)

    yield set_conf
    for key, value in before.items():
        spark.conf.set(key, value)


def rows_of(events, kind):
    stream = events.stream().selectExpr("k", "timestamp_seconds(s) t", "n")
    return stream.withWatermark("t", "16 minutes" if kind == "session" else "5 minutes")


ASSIGNERS = {
    "tumbling": (
        windows.TumblingEventTimeWindows.of(10 * MINUTE),
        lambda: F.window("t", "10 minutes"),
        "rocksdb",
    ),
    "sliding": (
        windows.SlidingEventTimeWindows.of(10 * MINUTE, 5 * MINUTE),
        lambda: F.window("t", "10 minutes", "5 minutes"),
        "heap",
    ),
    "session": (
        windows.EventTimeSessionWindows.with_gap(MINUTE),
        lambda: F.session_window("t", "60 seconds"),
        "lmdb",
    ),
}


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ASSIGNERS)
def test_windows_equal_those_of_spark(spark, job_conf, events, tmp_path, monkeypatch_conf, kind):
    """Windows have the sums of Spark's, and the same late rows are dropped.

    With several stateful operators, Spark compares rows with the previous watermark, so it accepts
    more late rows. It drops rows that Flink's rules add to an open session, so the sessions here
    have no late rows.
    """
    assigner, column, backend = ASSIGNERS[kind]
    job_conf(state_backend=backend)
    monkeypatch_conf("spark.sql.streaming.statefulOperator.allowMultiple", "false")
    ours = key_by(rows_of(events, kind), "k").window(assigner)
    run(ours.reduce(add, int, "n", output=SUMS, uid="sums"), tmp_path, name="ours")
    theirs = rows_of(events, kind).groupBy("k", column().alias("w")).agg(F.sum("n").alias("n"))
    theirs = theirs.select(
        "k", F.unix_millis("w.start").alias("start"), F.unix_millis("w.end").alias("end"), "n"
    )
    run(theirs, tmp_path, name="theirs")
    assert output(spark, tmp_path, "ours") == output(spark, tmp_path, "theirs")
    assert len(output(spark, tmp_path, "ours")) > 30


def test_late_rows_come_out_beside_the_windows(spark, job_conf, tmp_path):
    """With a side output, a late row is in a column of its own, unchanged."""
    job_conf(state_backend="heap")
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    files.add(("a", 5, 1), ("a", 130, 2))
    files.add(("a", 400, 3))
    files.add(("a", 7, 4))
    stream = files.stream().selectExpr("k", "timestamp_seconds(s) t", "n")
    keyed = key_by(stream.withWatermark("t", "0 seconds"), "k")
    windowed = keyed.window(windows.TumblingEventTimeWindows.of(MINUTE))
    out = windowed.side_output_late_data().reduce(add, int, "n", output=SUMS, uid="late")
    run(out, tmp_path)
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    late = written.where("late is not null").select("late.k", "late.n", F.unix_seconds("late.t"))
    assert [tuple(row) for row in late.collect()] == [("a", 4, 7)]
    fired = written.where("late is null").drop("late")
    assert sorted(map(tuple, fired.collect())) == [
        ("a", 0, 60_000, 1),
        ("a", 120_000, 180_000, 2),
    ]


def test_windows_in_a_plain_batch(spark, job_conf):
    """All windows fire at the end of a plain DataFrame."""
    job_conf(state_backend="heap")
    df = spark.createDataFrame([("a", 1, 1), ("a", 61, 2), ("a", 2, 3)], "k string, s int, n int")
    rows = df.selectExpr("k", "timestamp_seconds(s) t", "n")
    windowed = key_by(rows, "k").window(windows.TumblingEventTimeWindows.of(MINUTE))
    out = windowed.reduce(add, int, "n", output=SUMS, uid="plain", event_time="t")
    assert sorted(map(tuple, out.collect())) == [("a", 0, 60_000, 4), ("a", 60_000, 120_000, 2)]


class Parity(NamedTuple):
    """The even or the odd numbers of a minute."""

    odd: bool
    until: int

    def max_timestamp(self):
        return self.until - 1


class Parities(windows.WindowAssigner):
    """Assigner of the user's own windows."""

    is_event_time = True
    window_type = Parity

    def assign_windows(self, element, timestamp):
        return [Parity(element.n % 2 == 1, timestamp // MINUTE * MINUTE + MINUTE)]


@pytest.mark.long
def test_windows_of_a_type_of_ones_own(spark, job_conf, tmp_path):
    """Windows of a user's type fire in a stream and a plain batch, and are restored with the query."""
    job_conf(state_backend="rocksdb")
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    schema = "k string, odd boolean, until bigint, n bigint"

    def sums(df):
        keyed = key_by(df.selectExpr("k", "timestamp_seconds(s) t", "n"), "k")
        return keyed.window(Parities()).reduce(
            add, int, "n", output=schema, uid="own", event_time="t"
        )

    rows = [("a", 1, 1), ("a", 2, 2), ("a", 3, 5)]
    files.add(*rows[:2])
    stream = (
        files.stream().withColumn("t", F.timestamp_seconds("s")).withWatermark("t", "0 seconds")
    )
    keyed = key_by(stream.select("k", "t", "n"), "k").window(Parities())
    for more in (rows[2:], [("a", 100, 7)]):
        run(keyed.reduce(add, int, "n", output=schema, uid="own"), tmp_path)
        files.add(*more)
    run(keyed.reduce(add, int, "n", output=schema, uid="own"), tmp_path)
    expected = [("a", False, 60_000, 2), ("a", True, 60_000, 6)]
    assert output(spark, tmp_path) == expected
    batch = sums(spark.createDataFrame(rows, "k string, s bigint, n bigint"))
    assert sorted(map(tuple, batch.collect())) == expected


def test_windows_of_event_time_need_a_time(spark):
    """Event-time windows without a watermark or an event-time column are refused at creation."""
    keyed = key_by(spark.createDataFrame([("a", 1)], "k string, n long"), "k")
    windowed = keyed.window(windows.TumblingEventTimeWindows.of(10))
    with pytest.raises(errors.ConfigError, match="event_time: windows of event time need it: name"):
        windowed.reduce(add, int, "n", output=SUMS, uid="untimed")
    clock = keyed.window(windows.TumblingProcessingTimeWindows.of(10))
    assert clock.reduce(add, int, "n", output=SUMS, uid="clock").columns == [
        "k",
        "start",
        "end",
        "n",
    ]


def test_windows_of_rows_on_spark(spark):
    """``count_window`` works with and without a slide, whose evictor keeps the last rows."""
    keyed = key_by(spark.createDataFrame([("a", n) for n in range(1, 7)], "k string, n long"), "k")
    each = keyed.count_window(2).reduce(
        add, int, "n", lambda key, window, total: [(key, total)],
        output="k string, n bigint", uid="pairs", order_by="n",
    )  # fmt: skip
    assert [row.n for row in each.collect()] == [3, 7, 11]
    sliding = keyed.count_window(3, 2).reduce(
        add, int, "n", lambda key, window, total: [(key, total)],
        output="k string, n bigint", uid="triples", order_by="n",
    )  # fmt: skip
    assert [row.n for row in sliding.collect()] == [3, 9, 15]
