"""Windows on Spark read only the columns that they need."""

from datetime import UTC, datetime
from operator import add

import pytest
from millpond import OutputTag, errors, windows
from millpond.spark import key_by
from millpond_spark.api.keyed_stream import needed_columns
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

MINUTE = 60_000
SUMS = "k string, start bigint, end bigint, n bigint"
MINUTES = windows.TumblingEventTimeWindows.of(MINUTE)


def rows_of(numbers):
    """Return rows with unneeded columns, one of which has a type that Python cannot receive."""
    made = numbers.selectExpr(
        "array('a', 'b')[id % 2] k",
        "concat('row ', id) text",
        "timestamp_seconds(id * 10) t",
        "make_interval(0, 0, 0, cast(id as int)) lasting",
        "id n",
        "named_struct('x', id) s",
        "timestamp_seconds(id) other",
    )
    return made.withWatermark("other", "1 minute")


@pytest.fixture
def rows(spark):
    return rows_of(spark.range(20))


class ByText(windows.EventTimeTrigger):
    """A user's trigger, which reads rows."""

    def on_element(self, element, timestamp, window, ctx):
        assert element.text.startswith("row ")
        return super().on_element(element, timestamp, window, ctx)


@pytest.mark.parametrize(
    ("keys", "options", "needed"),
    [
        (["k"], dict, ["k", "n", "other"]),
        (["K"], lambda: {"event_time": "T"}, ["k", "t", "n", "other"]),
        (["k", "text"], lambda: {"order_by": ["n", "t"]}, ["k", "text", "t", "n", "other"]),
        (["k"], lambda: {"order_by": "s"}, ["k", "n", "s", "other"]),
        (["s.x"], dict, None),
        (["k"], lambda: {"order_by": [-F.col("n")]}, None),
        (["k"], lambda: {"event_time": F.col("t") + F.expr("interval 1 minute")}, None),
    ],
)
def test_the_columns_that_are_needed(spark, keys, options, needed):
    """Named columns of key, value, times and order are needed; with computed ones, all columns.

    Spark drops a watermark except in a stream.
    """
    rows = rows_of(spark.readStream.format("rate").load().withColumnRenamed("value", "id"))
    found = needed_columns(rows, key_by(rows, *keys)._keys, "n", options())
    assert (None if found is None else [rows.columns[at] for at in found]) == needed


@pytest.mark.sample(1)
@pytest.mark.parametrize("wrong", [{"event_time": "tt"}, {"event_time": "t", "order_by": ["tt"]}])
def test_wrong_columns_are_told_among_all(rows, wrong):
    """For a misspelt column, the nearest of all columns is suggested, also one that is not read."""
    windowed = key_by(rows, "k").window(MINUTES)
    with pytest.raises(errors.ConfigError, match="there are: k, text, t, lasting, n, s, other"):
        windowed.reduce(add, int, "n", output=SUMS, uid="w", **wrong)


def test_what_is_wrong_is_told_in_the_order_of_process(rows):
    """Of several wrong arguments, the same one is reported with and without pruning."""
    windowed = key_by(rows, "k").window(MINUTES)
    with pytest.raises(errors.ConfigError, match="uid"):
        windowed.reduce(add, int, "n", output=SUMS, uid="", event_time="tt")


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_columns_that_nobody_reads_stay_away(rows, job_conf, mode):
    """Windows work over rows with a column that could not be passed to Python."""
    job_conf(state_backend="heap")
    windowed = key_by(rows, "k").window(MINUTES)
    given = {"event_time": "t", "order_by": "t", "execution_mode": mode}
    found = windowed.reduce(add, int, "n", output=SUMS, uid="w", **given)
    assert sorted(map(tuple, found.collect())) == [
        (key, MINUTE * at, MINUTE * (at + 1), sum(range(6 * at + odd, min(6 * at + 6, 20), 2)))
        for odd, key in enumerate("ab")
        for at in range(4)
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "changed",
    [
        lambda windowed: windowed.trigger(ByText()),
        lambda windowed: windowed.trigger(windows.PurgingTrigger.of(ByText())),
        lambda windowed: windowed.side_output_late_data(),
    ],
)
def test_what_looks_at_rows_gets_whole_ones(rows, changed):
    """A user's trigger and late rows need all columns, so an unsupported column is refused."""
    windowed = changed(key_by(rows, "k").window(MINUTES))
    with pytest.raises(errors.UnsupportedColumnError, match="lasting"):
        windowed.reduce(add, int, "n", output=SUMS, uid="w", event_time="t")


def test_a_users_trigger_sees_whole_rows(rows, job_conf):
    """A user's trigger sees all supported columns."""
    job_conf(state_backend="heap")
    windowed = key_by(rows.drop("lasting"), "k").window(MINUTES).trigger(ByText())
    found = windowed.reduce(add, int, "n", output=SUMS, uid="w", event_time="t")
    assert found.count() == 8


def test_joined_streams_keep_all_columns(spark):
    """After a join of streams all columns are read, because Spark stores them in the join's state."""
    rows = rows_of(spark.readStream.format("rate").load().withColumnRenamed("value", "id"))
    names = spark.createDataFrame([("a", "Anna")], "k string, name string")
    other = rows.selectExpr("k", "t t2").withWatermark("t2", "1 minute")
    for joined, all_stay in ((rows.join(names, "k"), False), (rows.join(other, "k"), True)):
        found = needed_columns(joined, key_by(joined, "k")._keys, "n", {})
        assert (found is None) == all_stay


UNTYPED = OutputTag("untyped")


class BySide(windows.ProcessWindowFunction):
    """Window function that yields numbers to a side output without columns."""

    def process(self, key, context, elements):
        yield UNTYPED, (key, "", elements[0], datetime(1970, 1, 1, tzinfo=UTC))


def test_a_side_output_without_columns_has_all_of_the_rows(spark, job_conf):
    """A side output without columns has all columns of the rows, also those that the windows do not read."""
    job_conf(state_backend="heap")
    rows = rows_of(spark.range(20)).select("k", "text", "n", "t")
    windowed = key_by(rows, "k").window(MINUTES)
    made = windowed.process(BySide(), int, "n", output="k string", uid="w", event_time="t")
    found = made.side_output(UNTYPED)
    assert found.columns == ["k", "text", "n", "t"]
    assert sorted(row.n for row in found.collect()) == [0, 1, 6, 7, 12, 13, 18, 19]
