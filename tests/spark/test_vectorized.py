"""Vectorized functions on Spark: every type, streams with timers and restarts, wrong output."""

from datetime import datetime

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from millpond import errors
from millpond.spark import key_by

from tests.spark.every_type import NESTED, SCALARS, TIMES, as_text, table
from tests.spark.streaming import RUNNING, Files, Running, output, run

pytestmark = pytest.mark.spark


class EchoFrames(mp.VectorizedProcessFunction):
    """Function that returns each frame in two parts."""

    def process_batch(self, rows, context):
        yield rows.slice(0, 1)
        yield pa.Table.from_batches([rows.slice(1)])


class RunningFrames(mp.VectorizedProcessFunction):
    """Function that yields key, running count and running sum per row, like ``Running``."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int, default=0))

    def process_batch(self, rows, context):
        counts, sums = self.count.get_many(context.keys), self.sum.get_many(context.keys)
        ends = []
        for at, (_, mine) in enumerate(context.groups()):
            n = pc.add(pc.cumulative_sum(mine["n"]), sums[at])
            first = counts[at].as_py()
            ends.append((first + len(mine), n[-1].as_py()))
            order = pa.array(range(first + 1, ends[-1][0] + 1), pa.int64())
            yield pa.table({"sum": n, "k": mine["k"], "rows": order})
        self.count.update_many(context.keys, [count for count, _ in ends])
        self.sum.update_many(context.keys, [total for _, total in ends])


@pytest.mark.sample(1)
@pytest.mark.parametrize("columns", [SCALARS | TIMES, NESTED], ids=["scalars", "nested"])
def test_every_type_passes_unchanged(spark, job_conf, columns):
    """Each type comes out unchanged: nulls, extremes, NaN, years 1 and 9999, nested values."""
    job_conf(state_backend="heap")
    df = table(spark, columns)
    fields = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in df.schema)
    out = key_by(df, "id").process(EchoFrames(), output=fields, uid="echo-frames")
    assert as_text(out) == as_text(df)


def test_a_stream_as_row_by_row(spark, job_conf, tmp_path):
    """Frames and single rows give the same output in the requested order, and continue each other's state."""
    job_conf(state_backend="lmdb", parallelism=2)
    files = Files(spark, tmp_path / "input")
    files.add(*[(f"k{n % 5}", n) for n in range(30)])

    def job(function):
        return key_by(files.stream(), "k").process(
            function, output=RUNNING, uid="running", order_by="n"
        )

    run(job(RunningFrames()), tmp_path)
    files.add(*[(f"k{n % 7}", n) for n in range(30, 60)])
    run(job(Running()), tmp_path)
    files.add(*[(f"k{n % 6}", n) for n in range(60, 80)])
    run(job(RunningFrames()), tmp_path)
    rows = [
        *[(f"k{n % 5}", n) for n in range(30)],
        *[(f"k{n % 7}", n) for n in range(30, 60)],
        *[(f"k{n % 6}", n) for n in range(60, 80)],
    ]
    named = [{"k": key, "n": n} for key, n in rows]
    assert output(spark, tmp_path) == sorted(mp.local.run(Running(), named, key="k"))


class Wrong(mp.VectorizedProcessFunction):
    """Function that returns the test's result for its rows."""

    def __init__(self, make):
        self.make = make

    def process_batch(self, rows, context):
        return self.make(rows)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda rows: pa.table({"k": rows["k"]}), "missing: rows"),
        (lambda rows: pa.table({"k": rows["k"], "row": rows["n"]}), "did you mean rows by row"),
        (lambda rows: pa.table({"k": rows["n"], "rows": rows["n"]}), "'k' is declared str"),
        (
            lambda rows: pa.table({"k": rows["k"], "rows": [1 << 40] * len(rows)}),
            "'rows' is declared int, the function yielded int 1099511627776",
        ),
        (lambda rows: rows["k"], "instead of tables: return a RecordBatch"),
    ],
)
def test_wrong_tables_are_refused(spark, job_conf, make, told):
    """The error names operator, column and value."""
    job_conf(state_backend="heap", parallelism=1)
    df = spark.createDataFrame([("a", 1), ("b", 2)], "k string, n long")
    out = key_by(df, "k").process(Wrong(make), output="k string, rows int", uid="wrong-tables")
    with pytest.raises(Exception, match="wrong-tables") as failed:
        out.collect()
    assert told in str(failed.value)


def test_null_keys_and_batch_execution_are_refused(spark, job_conf):
    """A null key fails as with single rows; batch execution is refused at the call."""
    job_conf(state_backend="heap", parallelism=1)
    df = spark.createDataFrame([("a", 1), (None, 2)], "k string, n long")
    call = {"output": "k string, n long", "uid": "echo-frames"}
    with pytest.raises(Exception, match="of this row is null"):
        key_by(df, "k").process(EchoFrames(), **call).collect()
    found = key_by(df, "k", null_keys="drop").process(EchoFrames(), **call).collect()
    assert list(map(tuple, found)) == [("a", 1)]
    with pytest.raises(errors.ConfigError, match="leave it at streaming"):
        key_by(df, "k").process(EchoFrames(), **call, execution_mode="batch")


MAPS = "k string, m map<string,int>"


class Made(mp.VectorizedProcessFunction):
    """Function that returns the test's frame."""

    def __init__(self, make, frames="arrow"):
        self.make, self.frames = make, frames

    def process_batch(self, rows, context):
        return self.make(rows)


def collected(df, function, output):
    """Return the second column of the output, by the first."""
    made = key_by(df, "k").process(function, output=output, uid="made")
    return {row[0]: row[1] for row in made.collect()}


def with_unlike_dicts(rows):
    """Return maps with different keys, which Arrow would turn into structs."""
    return pd.DataFrame({"k": ["a", "b"], "m": [{"x": 1}, {"y": 2}]})


def test_dicts_of_a_data_frame_are_maps(spark, job_conf):
    """A dict in a map column gets no keys of other rows, at any depth, also if it was passed through."""
    job_conf(state_backend="heap")
    df = spark.sql("select 'a' k, map('x', 1) m union all select 'b', map('y', null)")
    assert collected(df, Made(with_unlike_dicts), MAPS) == {"a": {"x": 1}, "b": {"y": 2}}
    listed = Made(lambda rows: pd.DataFrame({"k": ["a"], "m": [[{"x": 1}, {"y": 2}]]}))
    within = collected(df, listed, "k string, m array<map<string,int>>")
    assert within == {"a": [{"x": 1}, {"y": 2}]}
    given = {"a": {"x": 1}, "b": {"y": None}}
    assert collected(df, Made(lambda rows: rows, "pandas"), MAPS) == given
    numbers = Made(lambda rows: pd.DataFrame({"k": ["a"], "m": [{1: 2}]}))
    assert collected(df, numbers, "k string, m map<int,int>") == {"a": {1: 2}}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("make", "output", "told"),
    [
        (lambda rows: pa.table({"k": ["a"], "m": [{"x": 1}]}), MAPS, "give it pa.map_ as type"),
        (
            lambda rows: pa.table({"k": ["a"], "m": [[{"x": 1}]]}),
            "k string, m array<map<string,int>>",
            "give it pa.map_ as type",
        ),
        (
            lambda rows: pa.table(
                {
                    "k": ["a"],
                    "m": pa.array([[("x", 1), ("x", 2)]], pa.map_(pa.string(), pa.int32())),
                }
            ),
            MAPS,
            "a map has a key twice",
        ),
        (lambda rows: pd.DataFrame({"k": ["a"], "m": [1 << 70]}), "k string, m bigint", "'m'"),
        (lambda rows: pd.DataFrame({"k": ["a", "b"], "m": ["x", 1]}), "k string, m int", "'x'"),
    ],
    ids=["structs", "nested", "twice", "wide", "mixed"],
)
def test_values_that_arrow_would_change_are_refused(spark, job_conf, make, output, told):
    """The error names the column, and the value if there is one."""
    job_conf(state_backend="heap")
    df = spark.createDataFrame([("a",)], "k string")
    with pytest.raises(Exception, match="OutputTypeError") as caught:
        collected(df, Made(make), output)
    assert told in str(caught.value)
    assert "pyarrow/" not in str(caught.value)


def test_what_is_missing_within_a_data_frame_is_null(spark, job_conf):
    """NaN, NaT and NA inside lists and dicts become nulls, and NumPy's scalars Python's values."""
    job_conf(state_backend="heap")
    df = spark.sql("select 'a' k, array(1.5D, null) m")
    floats = "k string, m array<double>"
    assert collected(df, Made(lambda rows: rows, "pandas"), floats) == {"a": [1.5, None]}
    values = {"x": np.float32(1.5), "y": np.nan, "z": pd.NA}
    frame = pd.DataFrame({"k": ["a"], "m": [values]})
    maps = collected(df, Made(lambda rows: frame), "k string, m map<string,double>")
    assert maps == {"a": {"x": 1.5, "y": None, "z": None}}
    moments = pd.Series([pd.Timestamp("2026-01-01"), pd.NaT])
    dated = pd.DataFrame({"k": ["a"], "m": [list(moments)]})
    found = collected(df, Made(lambda rows: dated), "k string, m array<timestamp_ntz>")
    assert found == {"a": [datetime(2026, 1, 1), None]}
