"""Two keyed inputs with one state, locally and on Spark."""

import random

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import create_savepoint, key_by
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from tests.spark.streaming import Files, output, run

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
TOTAL = mp.ValueStateDescriptor("total", int, default=0)


class Both(mp.KeyedCoProcessFunction):
    """Function whose result shows the order: the first input adds, the second doubles and adds."""

    def open(self, context):
        self.total = context.get_state(TOTAL)

    def process_element1(self, row, context):
        self.total.update(self.total.value() + row.n)
        context.timer_service().register_event_time_timer(1_000)
        yield context.current_key, "first", self.total.value()

    def process_element2(self, row, context):
        self.total.update(2 * self.total.value() + row.m)
        return [(context.current_key, "second", self.total.value())]

    def on_timer(self, timestamp, context):
        yield context.current_key, "timer", self.total.value()


OUT = "k string, what string, total bigint"


def reference(first, second):
    """Return the expected output of ``Both`` by event time, the first input's rows first, without timers."""
    totals, result = {}, []
    for row in sorted([*first, *second], key=lambda row: (row["ms"], "m" in row)):
        key = row.get("k", row.get("id"))
        old = totals.get(key, 0)
        totals[key] = old + row["n"] if "n" in row else 2 * old + row["m"]
        result.append((key, "second" if "m" in row else "first", totals[key]))
    return result


def drawn(seed, count=40):
    """Return rows of both inputs with different event times; the key has another name in the second."""
    rng = random.Random(seed)
    times = rng.sample(range(5 * count), 2 * count)
    first = [{"k": rng.choice("abc"), "n": rng.randint(0, 9), "ms": ms} for ms in times[:count]]
    second = [{"id": rng.choice("abcd"), "m": rng.randint(0, 9), "ms": ms} for ms in times[count:]]
    return first, second


def by_time(rows):
    """Return rows in order of time."""
    return sorted(rows, key=lambda row: row["ms"])


@BACKENDS
def test_generated_inputs(backend):
    """Rows of both inputs, merged by event time, give the results of plain Python, also after snapshots."""
    for seed in range(4):
        first, second = drawn(seed)
        out = mp.local.run(
            Both(), by_time(first), key="k", event_time="ms", backend=backend,
            second=by_time(second), second_key="id", second_event_time="ms",
        )  # fmt: skip
        wanted = reference(first, second)
        assert [row for row in out if row[1] != "timer"] == wanted
        merged = by_time([*first, *second])
        found, handle = [], None
        for part in (merged[:30], merged[30:]):
            with mp.testing.KeyedOperatorHarness(
                Both(), key="k", second_key="id", backend=backend, restore=handle
            ) as harness:
                for row in part:
                    (harness.process2 if "m" in row else harness.process1)(row, row["ms"])
                handle = harness.snapshot()
                found += harness.output
        assert found == wanted


def test_without_event_time_the_first_input_comes_first():
    """If one input has no event time, the first input's rows come first; timers see the state of both."""
    first, second = [{"k": "a", "n": 3}], [{"k": "a", "m": 1}]
    out = mp.local.run(Both(), first, key="k", second=second)
    assert out == [("a", "first", 3), ("a", "second", 7), ("a", "timer", 7)]


def test_the_watermark_follows_the_input_that_is_behind():
    """A timer fires once both inputs have passed its time."""
    first = [{"k": "a", "n": 1, "ms": 1}, {"k": "a", "n": 1, "ms": 2_000}]
    second = [{"k": "a", "m": 0, "ms": 900}, {"k": "a", "m": 0, "ms": 2_500}]
    out = mp.local.run(
        Both(), first, key="k", event_time="ms", watermark_delay=0,
        second=second, second_event_time="ms",
    )  # fmt: skip
    assert [row[1] for row in out] == ["first", "second", "first", "second", "timer"]


def test_inputs_and_functions_belong_together():
    """A second input needs a function of two inputs, and the harness has methods for each kind."""

    class Plain(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            yield row

    with pytest.raises(errors.ArgumentTypeError, match="function.*KeyedCoProcessFunction"):
        mp.local.run(Plain(), [], key="k", second=[])
    with mp.testing.KeyedOperatorHarness(Both(), key="k") as harness:
        with pytest.raises(errors.ArgumentTypeError, match="function.*KeyedProcessFunction"):
            harness.process({"k": "a", "n": 1})
        with pytest.raises(
            errors.UserFunctionError, match=r"key 'a'.*Both\.process_element2 failed"
        ):
            harness.process2({"k": "a", "m": "x"})
    with (
        mp.testing.KeyedOperatorHarness(Plain(), key="k") as harness,
        pytest.raises(errors.ArgumentTypeError, match="function.*KeyedCoProcessFunction"),
    ):
        harness.process1({"k": "a"})


FIRST, SECOND = "k string, n bigint, ms bigint", "ms bigint, m bigint, id string"


def frames(spark, first, second):
    """Return both inputs as DataFrames with timestamps."""
    one = spark.createDataFrame([(row["k"], row["n"], row["ms"]) for row in first], FIRST)
    two = spark.createDataFrame([(row["ms"], row["m"], row["id"]) for row in second], SECOND)
    return timed(one), timed(two)


def timed(df):
    """Return rows with a column of time, in few partitions, so that tests are faster."""
    return df.coalesce(1).withColumn("t", F.timestamp_millis("ms"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_two_inputs_of_a_plain_batch(spark, job_conf, mode):
    """By event time, and by each input's own order, the result is that of plain Python."""
    job_conf(state_backend="heap", parallelism=2)
    first, second = drawn(11)
    one, two = frames(spark, first, second)
    connected = key_by(one, "k").connect(key_by(two, "id"), event_time="t", in_time_order=True)
    out = connected.process(
        Both(), output=OUT, uid="both", event_time="t", execution_mode=mode
    ).where("what <> 'timer'")
    assert sorted(map(tuple, out.collect())) == sorted(reference(first, second))
    ordered = key_by(one, "k").connect(key_by(two, "id"), order_by="m").process(
        Both(), output=OUT, uid="ordered", order_by=[-F.col("n")], execution_mode=mode
    )  # fmt: skip
    mine = [{**row, "ms": -row["n"]} for row in first]
    theirs = [{**row, "ms": 100 + row["m"]} for row in second]
    found = sorted(map(tuple, ordered.where("what <> 'timer'").collect()))
    assert found == sorted(reference(mine, theirs))


def add(files, first, second, low, high):
    """Write a file for each input, with the rows of a period."""
    one, two = files
    one.add(*((row["k"], row["n"], row["ms"]) for row in first if low <= row["ms"] < high))
    two.add(*((row["ms"], row["m"], row["id"]) for row in second if low <= row["ms"] < high))


def go_on(files, tmp_path, name="query"):
    """Run the operator over new files, each batch's rows by event time."""
    streams = (timed(each.stream()).withWatermark("t", "1 hour") for each in files)
    keyed, other = map(key_by, streams, ("k", "id"))
    both = keyed.connect(other, in_time_order=True)
    run(both.process(Both(), output=OUT, uid="both"), tmp_path, name=name)


@pytest.mark.sample(1)
@BACKENDS
def test_two_inputs_of_a_query(spark, job_conf, tmp_path, backend):
    """State survives micro-batches and a rescale; the rows of each batch come by event time."""
    files = Files(spark, tmp_path / "one", FIRST), Files(spark, tmp_path / "two", SECOND)
    first, second = drawn(5, 30)
    for low, high, parallelism in ((0, 75, 2), (75, 150, 3)):
        add(files, first, second, low, high)
        job_conf(state_backend=backend, parallelism=parallelism)
        go_on(files, tmp_path)
    assert output(spark, tmp_path) == sorted(reference(first, second))


def test_a_savepoint_of_a_query(spark, job_conf, tmp_path):
    """A query over other files, with another backend and more subtasks, continues from a savepoint."""
    first, second = drawn(7, 30)
    job_conf(state_backend="rocksdb", parallelism=2)
    old = Files(spark, tmp_path / "one", FIRST), Files(spark, tmp_path / "two", SECOND)
    add(old, first, second, 0, 75)
    go_on(old, tmp_path, "old")
    create_savepoint(spark, str(tmp_path / "old" / "checkpoint"), tmp_path / "savepoint")

    job_conf(state_backend="lmdb", parallelism=3, checkpoint_restore=tmp_path / "savepoint")
    new = Files(spark, tmp_path / "three", FIRST), Files(spark, tmp_path / "four", SECOND)
    add(new, first, second, 75, 150)
    go_on(new, tmp_path, "new")
    found = output(spark, tmp_path, "old") + output(spark, tmp_path, "new")
    assert sorted(found) == sorted(reference(first, second))


def test_what_does_not_belong_together_is_refused(spark, job_conf):
    """Keys of different types, functions of one input, and an order by a missing time are refused."""
    job_conf(state_backend="heap")
    one, two = frames(spark, *drawn(1, 3))
    keyed, other = key_by(one, "k"), key_by(two, "id")
    with pytest.raises(errors.ConfigError, match=r"first input's are \(string\).*\(bigint\)"):
        keyed.connect(key_by(two, "m"))
    with pytest.raises(errors.ConfigError, match="in_time_order: the first input has no event"):
        keyed.connect(other, event_time="t", in_time_order=True).process(
            Both(), output=OUT, uid="x"
        )
    with pytest.raises(errors.ConfigError, match="in_time_order: the second input has no event"):
        keyed.connect(other, in_time_order=True)
    with pytest.raises(errors.ConfigError, match="belong together"):
        keyed.process(Both(), output=OUT, uid="x")
    with pytest.raises(errors.ConfigError, match="in_time_order: broadcast rows come before"):
        keyed.connect(two, in_time_order=True)


class Due(mp.KeyedCoProcessFunction):
    """Function that sets a timer for each row of the first input, and yields when it fires."""

    def process_element1(self, row, context):
        context.timer_service().register_event_time_timer(row.ms + 5)
        yield "row", row.ms

    def process_element2(self, row, context):
        yield "other", row.m

    def on_timer(self, timestamp, context):
        yield "timer", timestamp


@pytest.mark.parametrize("second_time", [None, "ms"])
def test_an_input_that_has_ended_or_has_no_time_holds_nothing_back(second_time):
    """An input that has ended or has no event time is ignored for the watermark, as in Flink and on Spark."""
    first = [{"k": "a", "ms": 1}, {"k": "a", "ms": 20}, {"k": "a", "ms": 40}]
    out = mp.local.run(
        Due(), first, key="k", event_time="ms", watermark_delay=0,
        second=[{"k": "a", "m": 0, "ms": 2}], second_event_time=second_time,
    )  # fmt: skip
    told = [row for row in out if row[0] != "other"]
    rows = [("row", 1), ("row", 20), ("timer", 6), ("row", 40), ("timer", 25), ("timer", 45)]
    assert told == rows


def test_keys_that_do_not_fit_are_told_with_their_row():
    """In a local run, a null key or a key of another type is refused with its row, of either input."""
    first = [{"k": "a", "n": 1}]
    with pytest.raises(errors.NullValueError, match=r"Row\(k=None, m=7\): the key must not be"):
        mp.local.run(Both(), first, key="k", second=[{"k": None, "m": 7}])
    with pytest.raises(errors.StateTypeError, match=r"the key of .*Row\(k=5, m=7\): expected str"):
        mp.local.run(Both(), first, key="k", second=[{"k": 5, "m": 7}])


def test_a_null_key_of_the_second_input(spark, job_conf):
    """The error about a null key shows the row of its own input."""
    job_conf(state_backend="heap", parallelism=1)
    one, two = frames(spark, [{"k": "a", "n": 1, "ms": 1}], [{"id": None, "m": 77, "ms": 2}])
    out = key_by(one, "k").connect(key_by(two, "id")).process(Both(), output=OUT, uid="nulls")
    with pytest.raises(PythonException, match=r"NullKeyError.*Row\(ms=2, m=77, id=None"):
        out.collect()
