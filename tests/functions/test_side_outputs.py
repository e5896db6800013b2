"""Side outputs: rows that a function yields with a tag, locally and on Spark."""

import operator
import random

import millpond as mp
import pytest
from millpond import errors, windows
from millpond.spark import key_by
from millpond_spark.values.side_outputs import Packer, SideRows
from pyspark.sql.types import BinaryType, BooleanType, DoubleType, LongType, StringType, StructType

from tests.arriving import values_of
from tests.spark.streaming import Files, output, run

BAD = mp.OutputTag("bad", "k string, n bigint, seen bigint")
ODD = mp.OutputTag("odd", "bigint")
BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


class Sorting(mp.KeyedProcessFunction):
    """Function that yields the key's count, negative numbers to one side output, odd ones to another."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row, context):
        seen = self.count.value()
        if row.n < 0:
            yield BAD, {"seen": seen, "n": row.n, "k": row.k}
            return
        if row.n % 2:
            yield ODD, row.n
        self.count.update(seen + 1)
        yield context.current_key, seen + 1


def reference(rows):
    """Return the expected output of ``Sorting``, in plain Python."""
    counts, main, bad, odd = {}, [], [], []
    for row in rows:
        seen = counts.get(row["k"], 0)
        if row["n"] < 0:
            bad.append((row["k"], row["n"], seen))
            continue
        if row["n"] % 2:
            odd.append(row["n"])
        counts[row["k"]] = seen + 1
        main.append((row["k"], seen + 1))
    return main, bad, odd


def drawn(rng, count):
    """Return random rows of a few keys."""
    return [{"k": rng.choice("abc"), "n": rng.randint(-3, 6)} for _ in range(count)]


@BACKENDS
def test_generated_rows_go_where_they_belong(backend):
    """Main and side outputs of generated rows are those of plain Python, also after a restore."""
    for seed in range(5):
        rows = drawn(random.Random(seed), 60)
        main, bad, odd = reference(rows)
        out = mp.local.run(Sorting(), rows, key="k", backend=backend)
        assert out == main
        assert [(row["k"], row["n"], row["seen"]) for row in out.side_output(BAD)] == bad
        assert out.side_output(ODD) == odd
        found = []
        handle = None
        for part in (rows[:30], rows[30:]):
            with mp.testing.KeyedOperatorHarness(
                Sorting(), key="k", backend=backend, restore=handle
            ) as harness:
                for row in part:
                    harness.process(row)
                handle = harness.snapshot()
                found.append(harness.output)
        assert [*found[0], *found[1]] == main
        assert found[0].side_output(ODD) + found[1].side_output(ODD) == odd


def test_what_no_row_went_to_is_empty():
    """A side output without rows is an empty list; tags are distinguished by name, not by type."""
    out = mp.local.run(Sorting(), [{"k": "a", "n": 1}], key="k")
    assert out.side_output(BAD) == []
    assert out.side_outputs == {"odd": [1]}
    assert out.side_output(mp.OutputTag("odd")) == out.get_side_output(ODD) == [1]
    assert mp.OutputTag("odd") == ODD != BAD


@pytest.mark.parametrize("odd", ["", None, 7, "a\ud800"])
def test_a_tag_has_a_name(odd):
    """A tag without a valid name is refused when it is created."""
    with pytest.raises((errors.ArgumentTypeError, errors.ArgumentValueError), match="tag_id"):
        mp.OutputTag(odd)


LATE = mp.OutputTag("late")


class Empty(windows.ProcessWindowFunction):
    """Window function that yields the sum, or the key to a side output if the sum is zero."""

    def process(self, key, context, elements):
        if elements:
            yield key, elements
        else:
            yield mp.OutputTag("zero", "k string"), key


def test_windows_have_side_outputs():
    """Late rows go to one tag, and the window function yields to another."""
    rows = [{"k": "a", "ms": 1, "n": 5}, {"k": "a", "ms": 25, "n": 0}, {"k": "a", "ms": 2, "n": 7}]
    windowing = windows.window(windows.TumblingEventTimeWindows.of(10))
    function = windowing.side_output_late_data(LATE).reduce(operator.add, int, "n", Empty())
    out = mp.local.run(function, rows, key="k", event_time="ms", watermark_delay=0)
    assert out == [("a", 5)]
    assert out.side_outputs == {"late": [("a", 2, 7)], "zero": ["a"]}


MAIN = StructType().add("k", StringType(), nullable=False).add("n", LongType())


def test_rows_that_nobody_takes():
    """Rows for a tag without a consumer are dropped; rows that do not fit the output are still refused."""
    one = StructType().add("v", StringType())
    for schema, row in ((MAIN, ("a", 1)), (one, "a"), (StructType([*MAIN, *one]), ("a", 1, "b"))):
        packer = Packer(SideRows.from_schema(schema, (), MAIN).main, None, "op")
        packer.add([row, (ODD, 3), row])
        (frame,) = packer.take()
        assert values_of(frame)[0] == ["a", "a"]
        packer.add([(ODD, 3)])
        assert packer.take() == []
        with pytest.raises(errors.OutputTypeError, match=r"operator|Operator"):
            packer.add([row, (7, 3)])
        assert packer.take() == []


def test_parts_make_one_frame():
    """Rows that were encoded in parts give the same frame as all rows at once."""
    schema = (
        StructType([*MAIN]).add("d", DoubleType()).add("b", BooleanType()).add("t", BinaryType())
    )
    codec = SideRows.from_schema(schema, (), MAIN).main
    rows = [("a", 1, 0.5, True, b"x"), ("b", None, 1.5, None, None), ("c", 3, None, False, b"")]
    packer = Packer(codec, None, "op")
    for row in rows:
        packer.add([row])
    assert packer.rows == len(rows)
    (frame,) = packer.take()
    assert values_of(frame) == [column.to_pylist() for column in codec.columns(rows, "op")]
    assert (packer.rows, packer.take()) == (0, [])


def test_rows_of_all_outputs_in_one_frame(spark):
    """A main column refuses the same values with and without side outputs."""
    codec = SideRows.from_schema(MAIN, [BAD, ODD, LATE], MAIN)
    rows = [("a", 1), (BAD, ("b", None, 3)), (ODD, 5), (LATE, ("c", 6)), (mp.OutputTag("x"), 1)]
    packer = Packer(codec.main, codec, "op")
    packer.add(rows)
    packer.add(rows[:1])
    (frame,) = packer.take()
    k, n, *sides = values_of(frame)
    assert k == ["a", None, None, None, "a"]
    assert n == [1, None, None, None, 1]
    assert [[value is None for value in side] for side in sides] == [
        [True, False, True, True, True],
        [True, True, False, True, True],
        [True, True, True, False, True],
    ]
    with pytest.raises(errors.OutputTypeError, match="'k'"):
        codec.parts([(None, 1)], "op")
    for row, fault in (
        (("b", 1), "column 'k, n, seen' is declared a row of 3.*2 values for 3 columns"),
        (("b", "x", 1), "column 'n' is declared int, the function yielded str 'x'"),
        (None, "column 'k, n, seen' is declared a row of 3.*yielded NoneType"),
    ):
        with pytest.raises(errors.OutputTypeError, match=f"side output 'bad', {fault}") as caught:
            codec.parts([("a", 1), (BAD, row)], "op")
        assert caught.value.side_output == "bad"
    with pytest.raises(errors.ConfigError, match="n: the output has a column of that name"):
        SideRows.from_schema(MAIN, [mp.OutputTag("n")], MAIN)
    for twice in ([mp.OutputTag("K")], [mp.OutputTag("x"), mp.OutputTag("X")]):
        with pytest.raises(
            errors.ConfigError, match="a column of that name, in upper or lower case"
        ):
            SideRows.from_schema(MAIN, twice, MAIN)
    with pytest.raises(errors.ConfigError, match="'x'.*: output: expected DDL text"):
        SideRows.from_schema(MAIN, [mp.OutputTag("x", 7)], MAIN)


COUNTS = "k string, count bigint"


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_side_outputs_of_a_plain_batch(spark, job_conf, mode):
    """Each output is a DataFrame, and one DataFrame can contain all outputs."""
    job_conf(state_backend="heap", parallelism=2)
    rows = drawn(random.Random(7), 50)
    df = spark.createDataFrame([(row["k"], row["n"]) for row in rows], "k string, n bigint")
    df = df.coalesce(1)
    out = key_by(df, "k").process(Sorting(), output=COUNTS, uid="sorting", execution_mode=mode)
    main, bad, odd = reference(rows)
    assert sorted(map(tuple, out.collect())) == sorted(main)
    assert sorted(map(tuple, out.side_output(BAD).collect())) == sorted(bad)
    assert sorted(row.value for row in out.get_side_output(ODD).collect()) == sorted(odd)
    joint = out.with_side_outputs(ODD, BAD)
    assert joint.columns == ["k", "count", "odd", "bad"]
    assert joint.where("odd is null and bad is null").count() == len(main)
    assert joint.where("bad is not null").count() == len(bad)
    with pytest.raises(errors.ConfigError, match="count: the output has a column of that name"):
        out.side_output(mp.OutputTag("count"))
    with pytest.raises(errors.ConfigError, match="at least one"):
        out.with_side_outputs()


@pytest.mark.sample(1)
@BACKENDS
def test_side_outputs_of_a_query(spark, job_conf, tmp_path, backend):
    """One run of the operator feeds several sinks, in later batches and after a rescale."""
    files = Files(spark, tmp_path / "in")
    rows = drawn(random.Random(3), 40)

    def write(batch, _):
        batch.persist()
        plain = batch.where("bad is null and odd is null").drop("bad", "odd")
        for name, rows in (
            ("main", plain),
            ("bad", batch.where("bad is not null").select("bad.*")),
            ("odd", batch.where("odd is not null").select("odd.*")),
        ):
            rows.write.mode("append").parquet(str(tmp_path / name))
        batch.unpersist()

    for part, parallelism in ((rows[:20], 2), (rows[20:], 3)):
        files.add(*((row["k"], row["n"]) for row in part))
        job_conf(state_backend=backend, parallelism=parallelism)
        keyed = key_by(files.stream().coalesce(1), "k")
        out = keyed.process(Sorting(), output=COUNTS, uid="sorting")
        writer = out.with_side_outputs(BAD, ODD).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    main, bad, odd = reference(rows)
    read = {name: spark.read.parquet(str(tmp_path / name)) for name in ("main", "bad", "odd")}
    assert sorted(map(tuple, read["main"].collect())) == sorted(main)
    assert sorted(map(tuple, read["bad"].collect())) == sorted(bad)
    assert sorted(row.value for row in read["odd"].collect()) == sorted(odd)


@pytest.mark.long
def test_a_side_output_is_a_query_of_its_own(spark, job_conf, tmp_path):
    """Main and side output can be two queries; late rows of windows have a tag too."""
    job_conf(state_backend="heap")
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    for second, n in ((5, 1), (130, 0), (400, 3), (7, 4)):
        files.add(("a", second, n))
    stream = files.stream().selectExpr("k", "timestamp_seconds(s) t", "n")
    keyed = key_by(stream.withWatermark("t", "0 seconds"), "k")
    windowed = keyed.window(windows.TumblingEventTimeWindows.of(60_000))
    sums = windowed.side_output_late_data(LATE).reduce(
        operator.add, int, "n", Empty(), output="k string, n bigint", uid="sums"
    )
    run(sums, tmp_path, name="main")
    run(sums.side_output(LATE).select("k", "n"), tmp_path, name="late")
    run(sums.side_output(mp.OutputTag("zero", "k string")), tmp_path, name="zero")
    assert output(spark, tmp_path, "main") == [("a", 1)]
    assert output(spark, tmp_path, "late") == [("a", 4)]
    assert output(spark, tmp_path, "zero") == [("a",)]
