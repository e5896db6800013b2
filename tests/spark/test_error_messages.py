"""Messages of failing jobs: the cause first, then the user's frames, then Millpond's."""

import pickle
import re

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by
from millpond.windows import TumblingEventTimeWindows
from millpond_cli.spark import reason
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import functions as F

from tests.spark import failing
from tests.spark.failing import OUTPUT, mark
from tests.spark.streaming import RUNNING, Running, run

HERE = re.escape(failing.__file__)
KEY = r"Operator 'totals', subtask \d, key 'a'"
ROW = KEY + r", row Row\(k='a', n=1, customer='ann', at=.*?\)"
FRAME = re.compile(r'^ +File "([^"]+)", line (\d+)', re.MULTILINE)


def rows(spark):
    schema = "k string, n bigint, customer string"
    df = spark.createDataFrame([("a", 1, "ann")], schema)
    return df.select("*", F.lit(3).cast("timestamp").alias("at"))


def processing(function):
    """Run a function over the rows."""

    def build(spark):
        keyed = key_by(rows(spark), "k")
        return keyed.process(function, output=OUTPUT, uid="totals", event_time="at")

    return build


def windowed(finish):
    """Run windows over the rows."""

    def build(spark):
        windows = key_by(rows(spark), "k").window(TumblingEventTimeWindows.of(10_000))
        return finish(windows, output=OUTPUT, uid="totals", event_time="at")

    return build


def connected(spark):
    rules = spark.createDataFrame([("x",)], "rule string")
    keyed = key_by(rows(spark), "k").connect(rules)
    return keyed.process(failing.Broadcasting(), output=OUTPUT, uid="totals")


def without_key(spark):
    keyed = key_by(rows(spark).withColumn("k", F.lit(None).cast("string")), "k")
    return keyed.process(failing.Passing(), output=OUTPUT, uid="totals")  # fails: null key


CASES = {
    "open": (
        processing(failing.Opening()),
        r"Operator 'totals', subtask \d: Opening\.open failed PLACE: ValueError: no network",
    ),
    "process_element": (
        processing(failing.Processing()),
        ROW + r": Processing\.process_element failed PLACE: ZeroDivisionError: integer division",
    ),
    "caused": (
        processing(failing.Caused()),
        ROW + r": Caused\.process_element failed PLACE: RuntimeError: no such tariff",
    ),
    "on_timer": (
        processing(failing.Firing()),
        KEY + r": Firing\.on_timer failed PLACE: ValueError: too late",
    ),
    "close": (
        processing(failing.Closing()),
        r"Operator 'totals', subtask \d: Closing\.close failed PLACE: ValueError: gone",
    ),
    "misspelt": (
        processing(failing.Misspelling()),
        ROW + r": Misspelling\.process_element failed PLACE: AttributeError: .*Did you mean "
        r"'?customer'?",
    ),
    "type": (
        processing(failing.Mistyping()),
        ROW
        + r": Mistyping\.process_element failed PLACE: output column 'total' is declared int, the "
        r"function yielded str 'one', in the row tuple \('a', 'one'\)",
    ),
    "width": (
        processing(failing.Widening()),
        ROW + r": Widening\.process_element failed PLACE: output column.*3 values for 2 columns",
    ),
    "returned": (
        processing(failing.Returning()),
        ROW + r": Returning\.process_element failed PLACE: it returned tuple \('a', 1\) "
        r"instead of rows: yield each row",
    ),
    "reduce": (
        processing(failing.Reducing()),
        ROW + r": Reducing\.process_element failed PLACE: TypeError: 'int' object is not subscr",
    ),
    "state type": (
        processing(failing.Storing()),
        ROW + r": Storing\.process_element failed PLACE: StateTypeError: .*expected int, got str",
    ),
    "aggregate": (
        windowed(lambda windows, **rest: windows.aggregate(failing.Adding(), int, **rest)),
        ROW + r": Adding\.add failed PLACE: \w+Error: ",
    ),
    "window": (
        windowed(lambda windows, **rest: windows.process(failing.Windows(), int, "n", **rest)),
        KEY + r": Windows\.process failed PLACE: IndexError: list index out of range",
    ),
    "broadcast": (
        connected,
        (
            r"Operator 'totals', subtask \d, row Row\(rule='x'\): "
            r"Broadcasting\.process_broadcast_element failed PLACE: ValueError: a bad rule"
        ),
    ),
    "null key": (
        without_key,
        (
            r"Operator 'totals': the key \(k\) of this row is null: .*n=1.*null_keys='drop'.*"
            r"\(the operator is made at LINE\)"
        ),
    ),
}


def first_line(said):
    """Return the message: on the first line, or behind Spark's heading, which some versions wrap."""
    found = [re.search(r"millpond\.errors\.[\w.]+: (.*)", line) for line in said.splitlines()[:3]]
    return next((each[1] for each in found if each), f"not in the first lines: {said}")


def first_frame(said):
    """Return file and line of the innermost frame of the first frames."""
    shown = said.partition("Traceback (most recent call last):")[2].partition("\nBehind it")[0]
    file, line = FRAME.findall(shown)[-1]
    return file, int(line)


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_the_first_line_is_the_point(spark, case):
    """Operator, key, row, and the error with its place come first, then user code; the command prints only this."""
    build, expected = CASES[case]
    with pytest.raises(PythonException) as caught:
        build(spark).collect()
    said = str(caught.value)
    file = __file__ if case == "null key" else failing.__file__
    line = mark(case, file)
    at = rf"{re.escape(file)}, line {line}"
    pattern = expected.replace("PLACE", rf"\({at}\)").replace("LINE", at)
    assert re.match(pattern, first_line(said)), said
    assert reason(said) == first_line(said)
    assert first_frame(said) == (file, line), said
    users, ours = said.split("\nBehind it, in Millpond:\n")
    assert not [file for file, _ in FRAME.findall(users) if "/millpond/" in file]
    assert "run_partition" in ours
    assert ("raw_states.py" in ours) == (case == "state type")


def test_a_cause_is_shown_and_a_later_error_hides_nothing(spark):
    """The user's chain of causes is complete, and an error of `close` comes second."""
    with pytest.raises(PythonException) as caught:
        processing(failing.Caused())(spark).collect()
    assert "KeyError: 1\n\nThe above exception was the direct cause" in str(caught.value)
    with pytest.raises(PythonException, match=r"ZeroDivisionError[^\n]*\nThen Operator") as caught:
        processing(failing.FailingTwice())(spark).collect()
    assert "ZeroDivisionError" in first_line(str(caught.value))


class Changed(Running):
    """Function whose count has another type."""

    def open(self, context):
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int, default=0))
        self.count = context.get_state(mp.ValueStateDescriptor("count", str))  # fails: changed


class Bad(Running):
    def process_element(self, row, context):
        yield row.k, row.m, 1  # fails: stream


def stream_of(files, function, uid="totals"):
    return key_by(files.stream(), "k").process(function, output=RUNNING, uid=uid)


def stream_error(df, tmp_path, name="query"):
    """Return the whole error of awaitTermination, and its first lines."""
    with pytest.raises(StreamingQueryException) as caught:
        run(df, tmp_path, name=name)
    return str(caught.value), "".join(str(caught.value).splitlines()[:3])


@pytest.mark.sample(1)
@pytest.mark.parametrize("wait", ["awaitTermination", "processAllAvailable"])
def test_a_stream_says_it_on_its_first_line(job_conf, files, tmp_path, wait):
    """Both ways to wait show the message next to Spark's words, and the user's code first."""
    files.add(("a", 1))
    writer = stream_of(files, Bad()).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException) as caught:
        getattr(query, wait)()
    said = str(caught.value)
    line = mark("stream", __file__)
    where = rf"Bad.process_element failed \({re.escape(__file__)}, line {line}\): AttributeError: "
    assert re.search(rf"{KEY}, row Row\(.*?\): {where}.*no column 'm'", first_line(said)), said
    assert first_frame(said) == (__file__, line)


def test_foreach_batch_says_it_too(spark, job_conf, files, tmp_path):
    """The message is on the first line of the query's exception, then the user's frames.

    Operators of a stream and of the batch's rows fail with the same words.
    """
    files.add(("a", 1))

    def each(batch, _):
        key_by(batch, "k").process(Bad(), output=RUNNING, uid="totals").collect()  # fails: each

    def collect(batch, _):
        batch.collect()  # fails: collect

    for df, function, name in (
        (files.stream(), each, "each"),
        (stream_of(files, Bad()), collect, "collect"),
    ):
        writer = df.writeStream.foreachBatch(function).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / name)).start()
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination()
        said, line = str(caught.value), mark("stream", __file__)
        place = rf"foreachBatch failed in batch 0 \({re.escape(__file__)}, line {mark(name, __file__)}\): "
        sentence = rf"{place}\S*UserFunctionError: {KEY}, row .*line {line}\)"
        assert re.search(sentence, first_line(said)), said
        assert f'File "{__file__}", line {line}, in process_element' in said
        before_the_plan = said.partition("\n=== Streaming Query ===")[0]
        assert "Behind it, in Millpond" not in before_the_plan
        assert len(before_the_plan) < 3_000, said


def test_foreach_batch_leaves_other_errors_alone(spark, job_conf, files, tmp_path):
    """An error of the user's own function is shown as Spark does; one of the operator is shown first."""
    files.add(("a", 1))

    def own(batch, _):
        raise ValueError("mine")

    def misconfigured(batch, _):
        key_by(batch, "no_such_column")

    for function, sentence in (
        (own, "\nValueError: mine"),
        (
            misconfigured,
            "Return Message: millpond.errors.ForeachBatchError: foreachBatch",
        ),
    ):
        writer = files.stream().writeStream.foreachBatch(function).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / function.__name__)).start()
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination()
        assert sentence in str(caught.value)


def test_restarts_that_cannot_be(spark, job_conf, files, tmp_path):
    """Changed types, a changed uid, and a missing snapshot are named on the first line."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    run(stream_of(files, Running()), tmp_path)
    files.add(("a", 2))
    said, first = stream_error(stream_of(files, Changed()), tmp_path)
    line = mark("changed", __file__)
    where = rf"Changed.open failed \({re.escape(__file__)}, line {line}\): StateMigrationError: "
    assert re.search(
        r"Operator 'totals', subtask \d: " + where + ".*stored as int, declared is str", first
    ), said
    assert first_frame(said) == (__file__, line)
    _, first = stream_error(stream_of(files, Running(), "other"), tmp_path)
    assert "holds state of 'totals', but the query's operators are 'other'" in first
    kept = [path for path in (tmp_path / "snapshots").rglob("*.snapshot*") if path.is_file()]
    for path in kept:
        path.unlink()
    said, first = stream_error(stream_of(files, Running()), tmp_path)
    assert re.search(r"The snapshot file '.*' cannot be trusted: ", first), first
    assert first_frame(said)[0] == __file__


def test_a_directory_that_cannot_be_written_with_rows(job_conf, files, tmp_path):
    """The first line names configuration key and directory, with and without rows."""
    files.add(("a", 1))
    job_conf(checkpoint_dir="/proc/nowhere")
    _, first = stream_error(stream_of(files, Running()), tmp_path)
    assert re.search(r"spark\.millpond\.checkpoint\.dir: .*/proc/nowhere.*No such file", first)


def test_failures_survive_pickling_and_are_bounded():
    """Long keys and rows are shortened in the message, and pickling keeps all fields."""

    class Endless:
        def __repr__(self):
            return "x" * 1_000_000

    with pytest.raises(errors.UserFunctionError) as caught:
        mp.local.run(failing.Processing(), [{"k": "k" * 5000, "n": 1, "more": Endless()}], key="k")
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.line, again.file) == (mark("process_element"), failing.__file__)
    assert len(error.key) <= 120
    assert len(error.row) <= 300
