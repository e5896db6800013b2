"""Dead letters on Spark: streams, batches, windows, two inputs, every type of column."""

from datetime import UTC, datetime

import millpond as mp
import pytest
from millpond import errors, windows
from millpond.spark import key_by, subtask_metrics
from millpond.spark import operator as without_keys

from tests.spark.streaming import Files, Running, run

pytestmark = pytest.mark.spark
OUTPUT = "k string, rows bigint, sum bigint"
BAD = mp.OutputTag("bad", "n bigint")


class Strict(Running):
    """Function that counts and sums, and then refuses negative numbers."""

    def process_element(self, row, context):
        yield from super().process_element(row, context)
        if row.n < 0:
            raise ValueError(f"{row.n} is negative")


def letters(spark, tmp_path):
    """Return the letters that a query has written."""
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    return written.where("dead_letters is not null").select("dead_letters.*")


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize("strategy", ["changelog", "full"])
def test_a_query_continues(spark, job_conf, files, tmp_path, backend, strategy):
    """Failed rows are in the side output; the state of later batches and runs is without them."""
    job_conf(state_backend=backend, state_snapshot_strategy=strategy)
    out = key_by(files.stream(), "k").process(
        Strict(), output=OUTPUT, uid="strict", on_error="side_output"
    )
    out = out.with_side_outputs(mp.DEAD_LETTERS)
    files.add(("a", 1), ("a", -5), ("b", 10))
    files.add(("a", 2), ("b", -6))
    run(out, tmp_path)
    files.add(("a", 3), ("c", -7))
    run(out, tmp_path)
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    main = written.where("dead_letters is null").drop("dead_letters")
    assert sorted(map(tuple, main.collect())) == [
        ("a", 1, 1),
        ("a", 2, 3),
        ("a", 3, 6),
        ("b", 1, 10),
    ]
    found = letters(spark, tmp_path)
    assert found.columns == ["operator", "key", "method", "error", "traceback", "row"]
    assert sorted((row.key, row.row.n) for row in found.collect()) == [
        ("a", -5),
        ("b", -6),
        ("c", -7),
    ]
    (row,) = found.where("key = 'c'").collect()
    assert row[:4] == ("strict", "c", "Strict.process_element", "ValueError: -7 is negative")
    assert row.traceback.splitlines()[-1] == "ValueError: -7 is negative"
    assert __file__ in row.traceback
    again = found.select("row.*")
    assert again.columns == ["k", "n"]
    metrics = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert sum(each.metrics["numDeadLetters"] for each in metrics) == 1


def test_letters_that_nothing_takes(spark, job_conf):
    """Without the side output in the query, a failed row fails it, and the error says what to do."""
    job_conf(state_backend="heap")
    df = spark.createDataFrame([("a", 1), ("a", -1)], "k string, n bigint")
    out = key_by(df, "k").process(Strict(), output=OUTPUT, uid="strict", on_error="side_output")
    with pytest.raises(
        Exception, match=r"-1 is negative[\s\S]*with_side_outputs\(mp.DEAD_LETTERS\)"
    ):
        out.collect()
    (row,) = out.side_output(mp.DEAD_LETTERS).collect()
    assert (row.key, row.row) == ("a", ("a", -1))
    times = df.selectExpr("k", "n", "timestamp_millis(if(n > 0, n, null)) AS t")
    timed = key_by(times, "k").process(
        Running(), output=OUTPUT, uid="t", event_time="t", null_event_times="side_output"
    )
    with pytest.raises(Exception, match=r"NoEventTimeError[\s\S]*with_side_outputs"):
        timed.collect()
    (row,) = timed.side_output(mp.DEAD_LETTERS).collect()
    assert (row.row.n, row.traceback) == (-1, None)


def test_refusals(spark, job_conf):
    """Wrong options, and letters of an operator that has none, are refused before the query."""
    job_conf(state_backend="heap")
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    call = {"output": OUTPUT, "uid": "strict"}
    for wrong in ({"on_error": "aside"}, {"null_event_times": "drop"}, {"null_event_times": 1}):
        with pytest.raises(errors.ConfigError, match=next(iter(wrong))):
            key_by(df, "k").process(Strict(), **call, **wrong)
    with pytest.raises(errors.ConfigError, match="on_error='side_output'"):
        key_by(df, "k").process(Strict(), **call).side_output(mp.DEAD_LETTERS)


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_plain_dataframe(spark, job_conf, mode):
    """In batch execution, a failed row leaves no trace in the state of its key."""
    job_conf(state_backend="lmdb")
    rows = [("a", 1), ("b", -2), ("a", -1), ("a", 5), ("b", 7)]
    df = spark.createDataFrame(rows, "k string, n bigint")
    out = key_by(df, "k").process(
        Strict(), output=OUTPUT, uid="s", order_by="n", execution_mode=mode, on_error="side_output"
    )
    found = out.with_side_outputs(mp.DEAD_LETTERS).collect()
    main = sorted(row[:3] for row in found if row.dead_letters is None)
    assert main == [("a", 1, 1), ("a", 2, 6), ("b", 1, 7)]
    assert sorted(row.dead_letters.row.n for row in found if row.dead_letters) == [-2, -1]


class Wrong(mp.KeyedProcessFunction):
    """Function that yields rows that do not fit the output, or a side output."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        yield row.k, self.count.value() if row.n % 10 else "no number"
        if row.n % 10 == 1:
            yield BAD, "no number"


def test_rows_that_do_not_fit_the_output(spark, job_conf):
    """Each yielded row that does not fit makes its input row a letter, also after many calls."""
    job_conf(state_backend="heap")
    df = spark.range(200).selectExpr("'a' AS k", "id AS n").coalesce(1)
    out = key_by(df, "k").process(
        Wrong(), output="k string, count bigint", uid="wrong", order_by="n", on_error="side_output"
    )
    found = out.with_side_outputs(mp.DEAD_LETTERS, BAD).collect()
    main = [row["count"] for row in found if row.dead_letters is None]
    assert main == list(range(1, 161))
    failed = [row.dead_letters for row in found if row.dead_letters is not None]
    assert [row.row.n for row in failed] == [n for n in range(200) if n % 10 < 2]
    assert all("no number" in row.error for row in failed)


class Enriched(mp.KeyedCoProcessFunction):
    """Function of two inputs, each of which refuses negative numbers."""

    def open(self, context):
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int, default=0))

    def process_element1(self, row, context):
        self.sum.update(self.sum.value() + row.n)
        assert row.n > 0
        yield row.k, self.sum.value()

    def process_element2(self, row, context):
        self.sum.update(self.sum.value() + row.m)
        assert row.m > 0


def test_two_inputs(spark, job_conf):
    """A failed row of the second input is in a column of its own, with the columns of that input."""
    job_conf(state_backend="rocksdb")
    first = spark.createDataFrame([("a", 1), ("a", -1), ("b", 2)], "k string, n bigint")
    second = spark.createDataFrame([("a", -10, [1.5])], "who string, m bigint, more array<double>")
    out = key_by(first, "k").connect(key_by(second, "who")).process(
        Enriched(), output="k string, sum bigint", uid="enriched", on_error="side_output"
    )  # fmt: skip
    found = out.with_side_outputs(mp.DEAD_LETTERS).collect()
    assert sorted(row[:2] for row in found if not row.dead_letters) == [("a", 1), ("b", 2)]
    letters = sorted(
        (row.dead_letters for row in found if row.dead_letters), key=lambda row: row.method
    )
    assert [tuple(row[-2:]) for row in letters] == [(("a", -1), None), (None, ("a", -10, [1.5]))]


class Reciprocal(mp.ProcessFunction):
    """Function without keys that divides."""

    def process_element(self, row, context):
        yield 12 // row.n


def test_rows_without_keys(spark, job_conf):
    """Letters of rows without keys have a null key."""
    job_conf(state_backend="heap")
    df = spark.createDataFrame([(3,), (0,), (4,)], "n bigint")
    out = without_keys(df).process(Reciprocal(), output="q bigint", uid="q", on_error="side_output")
    found = out.with_side_outputs(mp.DEAD_LETTERS).collect()
    assert sorted(row.q for row in found if row.q is not None) == [3, 4]
    (letter,) = (row.dead_letters for row in found if row.dead_letters)
    assert (letter.key, letter.row.n) == (None, 0)


def refuse_threes(a, b):
    """Add two numbers; fail if the second one is 3."""
    if b == 3:
        raise ValueError("three")
    return a + b


@pytest.mark.parametrize("treatment", ["drop", "side_output"])
def test_windows_of_a_stream(spark, job_conf, tmp_path, treatment):
    """A letter has all columns of its row, though the window reads only one of them.

    Rows without an event time are dropped or put aside.
    """
    job_conf(state_backend="lmdb")
    files = Files(spark, tmp_path / "in", "k string, n bigint, second bigint, other string")
    files.add(
        ("a", 1, 1, "x"), ("a", 3, 2, "y"), ("a", 4, None, "z"), ("a", 5, 3, "x"), ("a", 6, 90, "x")
    )  # fmt: skip
    stream = files.stream().selectExpr("*", "timestamp_seconds(second) AS at")
    windowed = key_by(stream.withWatermark("at", "1 second"), "k").window(
        windows.TumblingEventTimeWindows.of(60_000)
    )
    out = windowed.side_output_late_data("late").reduce(
        refuse_threes, int, "n", output="k string, start bigint, end bigint, n bigint", uid="w",
        on_error="side_output", null_event_times=treatment,
    )  # fmt: skip
    run(out.with_side_outputs(mp.DEAD_LETTERS), tmp_path)
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    assert [row[:4] for row in written.where("n is not null").collect()] == [("a", 0, 60_000, 6)]
    found = sorted(
        (row.row.n, row.row.other, row.row["at"]) for row in letters(spark, tmp_path).collect()
    )
    expected = [(3, "y", datetime.fromtimestamp(2, UTC).replace(tzinfo=None))]
    expected += [(4, "z", None)] if treatment == "side_output" else []
    assert found == expected


class Fails(mp.KeyedProcessFunction):
    """Function that fails for every row."""

    def process_element(self, row, context):
        raise ValueError("all rows")


def test_every_type_of_column(spark, job_conf):
    """The rows in letters equal the input, whatever the types and the names of its columns are."""
    job_conf(state_backend="heap")
    df = spark.sql(
        """SELECT id AS `a.b`, cast(null AS int) AS `class`, 'ä' AS `two words`, 1.5D AS f,
        double('nan') AS nan, cast(1.25 AS decimal(10, 3)) AS d, X'00ff' AS raw, true AS b,
        timestamp '2020-01-01 00:00:00' AS t, timestamp_ntz '1900-01-01 00:00:00' AS ntz,
        date '0001-01-01' AS day, array(1, null) AS numbers, map('k', struct(1 AS x, 'y' AS y)) AS m,
        named_struct('p', 1, 'q', array(named_struct('r', X'01'))) AS s FROM range(3)"""
    )
    out = key_by(df, "`a.b`").process(Fails(), output="n int", uid="all", on_error="side_output")
    found = out.side_output(mp.DEAD_LETTERS).select("row.*")
    kinds = [[field.dataType.simpleString() for field in each.schema] for each in (found, df)]
    assert kinds[0] == kinds[1]
    assert found.columns == df.columns
    assert sorted(map(repr, found.collect())) == sorted(map(repr, df.collect()))
