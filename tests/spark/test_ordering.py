"""``order_by`` in the worker sorts without loss, in memory that does not depend on the batch's size."""

import random
from itertools import product

import attrs
import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors
from millpond.functions.functions import SubtaskInfo
from millpond.spark import key_by
from millpond_conformance.processes import in_a_child
from millpond_spark.values.frames import nulls_first
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.worker import ordering
from millpond_spark.worker.ordering import in_order
from millpond_spark.worker.runner import SubtaskRunner
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from tests.arriving import arriving, values_of
from tests.operator_plans import plan_of

NAN = float("nan")


@pytest.fixture
def small(monkeypatch):
    """Use small runs: 100 rows, chunks of 7, frames of 11."""
    monkeypatch.setattr(ordering, "_RUN_ROWS", 100)
    monkeypatch.setattr(ordering, "_CHUNK_ROWS", 7)
    monkeypatch.setattr(ordering, "_FRAME_ROWS", 11)


def made(rows):
    """Return a frame as Spark passes it: numbers, and nullable objects."""
    names = ["number", "text", "raw", "flag", "real"]
    frame = pd.DataFrame(rows, columns=names)
    return frame.astype({"text": object, "raw": object})


def some_rows(count, seed):
    randoms = random.Random(seed)
    return [
        (
            randoms.choice([2**53 + 1, -(2**63), place]),
            randoms.choice([None, "", "\0é", f"t{place}"]),
            randoms.choice([None, b"", b"\xff\0"]),
            randoms.random() < 0.5,
            randoms.choice([0.5, NAN, float("inf")]),
        )
        for place in range(count)
    ]


def by_number(frame):
    return [number // 10 for number in frame["number"].tolist()]


@pytest.mark.parametrize("counts", [[], [0], [5], [0, 60, 40], [99, 2], [130, 0, 1, 250, 100]])
def test_rows_are_sorted_and_stay_as_they_are(small, counts):
    """For any number of rows and frames, the order is that of Python's stable sort."""
    frames = [made(some_rows(count, seed)) for seed, count in enumerate(counts)]
    found = list(in_order(iter(frames), by_number))
    assert all(0 < len(frame) <= 11 for frame in found)
    rows = [row for frame in frames for row in frame.to_dict("records")]
    rows.sort(key=lambda row: row["number"] // 10)
    assert [repr(row) for frame in found for row in frame.to_dict("records")] == list(
        map(repr, rows)
    )


def test_a_column_of_nulls_alone(small):
    """A run in which a column has only nulls is read back unchanged."""
    frames = [made([(n, text, None, True, 1.0) for n in range(100)]) for text in (None, "x")]
    found = [row for frame in in_order(iter(frames), by_number) for row in frame["text"].tolist()]
    assert (found.count(None), found.count("x"), len(found)) == (100, 100, 200)


class Live:
    """A key that counts its instances in memory."""

    now = most = 0

    def __init__(self, number):
        self.number = number
        Live.now += 1
        Live.most = max(Live.most, Live.now)

    def __del__(self):
        Live.now -= 1

    def __lt__(self, other):
        return self.number < other.number


def test_memory_follows_the_run_not_the_batch(small):
    """For a batch of 2,000 rows, only a run, or a chunk of each run, is in memory at a time."""
    mixed = [(n * 7919 % 2_000, None, None, True, 0.0) for n in range(2_000)]
    frames = (made(mixed[start : start + 50]) for start in range(0, 2_000, 50))
    ordered = in_order(frames, lambda frame: list(map(Live, frame["number"].tolist())))
    numbers = [number for frame in ordered for number in frame["number"].tolist()]
    assert numbers == list(range(2_000))
    runs = 20
    assert Live.most <= max(100, runs * (7 + 2) + 11)


def test_nulls_come_first_and_nan_last():
    """As in Spark, nulls come first and NaN last; NaN does not disturb the order of other values."""
    assert sorted([2.0, NAN, None, 1.0, NAN, 0.5], key=nulls_first)[:4] == [None, 0.5, 1.0, 2.0]


def test_nested_columns_are_ordered_as_spark_orders_them(spark, job_conf):
    """Structs and arrays with nulls and NaN are ordered as in Spark, of both inputs."""
    job_conf()
    inner = [None, (None, "a"), (NAN, "a"), (1.0, None), (1.0, "a"), (-0.5, "b")]
    outer = [None, [], [None], [1, None], [1], [2], [1, 2]]
    rows = [("k", at, one, two) for at, (one, two) in enumerate(product(inner, outer))]
    random.Random(1).shuffle(rows)
    ddl = "k string, at int, s struct<x: double, y: string>, l array<int>"
    df = spark.createDataFrame(rows, ddl)
    wanted = [row.at for row in df.orderBy("s", "l").collect()]
    seen = key_by(df, "k").process(Seen(), output=ddl, order_by=["s", "l"], uid="seen")
    assert [row.at for row in seen.collect()] == wanted
    connected = key_by(df, "k").connect(key_by(df, "k"), order_by=["s", "l"])
    both = connected.process(Second(), output="at int", uid="both")
    assert [row.at for row in both.collect()] == wanted


@pytest.mark.sample(1)
@pytest.mark.parametrize("order", ["desc", "asc_nulls_last"])
def test_an_order_is_not_a_column(spark, job_conf, order):
    """An argument of Spark's ``orderBy`` that is not a column is refused before the query runs."""
    job_conf()
    df = spark.createDataFrame([("k", 1)], "k string, n int")
    ordered = getattr(F, order)("n")
    with pytest.raises(errors.ConfigError, match=r"process\(order_by=.*it is an order"):
        key_by(df, "k").process(Seen(), output=df.schema, order_by=["k", ordered], uid="seen")
    with pytest.raises(errors.ConfigError, match=r"connect\(order_by=.*it is an order"):
        key_by(df, "k").connect(df, order_by=ordered.alias("m"))
    with pytest.raises(errors.ConfigError, match=r"key_by\(.*it is an order"):
        key_by(df, ordered)


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["n desc", "n + 1 ASC"])
def test_an_order_in_an_expressions_text_is_not_a_column(spark, job_conf, text):
    """An order in an expression's text is refused, because Spark would take it for the column's name."""
    job_conf()
    df = spark.createDataFrame([("k", 1, 2)], "k string, n int, `n desc` int")
    with pytest.raises(errors.ConfigError, match=r"process\(order_by=.*it is an order"):
        key_by(df, "k").process(Seen(), output=df.schema, order_by=F.expr(text), uid="seen")
    for column in (F.col("n").alias("desc"), F.col("n desc"), F.expr("n as desc"), "n desc"):
        key_by(df, "k").process(Seen(), output=df.schema, order_by=column, uid="seen")


def test_a_ranking_is_a_column(spark, job_conf):
    """A window function with an order of its own can order rows."""
    job_conf()
    df = spark.createDataFrame([("k", 1), ("k", 3), ("k", 2)], "k string, n int")
    rank = F.row_number().over(Window.partitionBy("k").orderBy(F.desc("n")))
    seen = key_by(df, "k").process(Seen(), output=df.schema, order_by=rank, uid="seen")
    assert [row.n for row in seen.collect()] == [3, 2, 1]


class Second(mp.KeyedCoProcessFunction):
    """Function that yields the numbers of the connected rows in order of arrival."""

    def process_element1(self, row, context):
        return []

    def process_element2(self, row, context):
        yield (row.at,)


class Seen(mp.KeyedProcessFunction):
    """Function that yields each row in order of arrival."""

    def process_element(self, row, context):
        yield tuple(row)


@pytest.mark.parametrize("count", [30, 450])
def test_a_subtask_hands_out_rows_in_their_order(small, count):
    """In one run or several: by number, nulls first, then by text, with unchanged values."""
    schema = StructType().add("k", StringType()).add("n", LongType()).add("s", StringType())
    plan = plan_of("seen", Seen(), schema, mp.Config({}), "heap")
    plan = attrs.evolve(plan, order_by=(1, 2))
    randoms = random.Random(count)
    rows = [
        (f"k{at % 3}", randoms.choice([None, 1, 2**60 + at % 5]), randoms.choice("abc"))
        for at in range(count)
    ]
    frames = (carried(rows[start : start + 40]) for start in range(0, count, 40))
    with (
        mp.open_keyed_backend("heap", key_type=str, max_parallelism=1) as backend,
        mp.open_operator_backend() as operator_state,
    ):
        runner = SubtaskRunner(plan, SubtaskInfo("seen", 0, 1, 1), backend, operator_state)
        with runner.operator.opened():
            parts = [map(pa.array, values_of(frame)) for frame in runner.run(frames, None)]
    packed = list(map(pa.concat_arrays, zip(*parts, strict=True)))
    found = list(zip(*plan.rows.decode(arriving(plan.rows, packed)), strict=True))
    assert found == sorted(rows, key=lambda row: (nulls_first(row[1]), row[2]))


def carried(rows):
    """Return rows as they reach a worker, with a mask for the number's nulls."""
    frame = pd.DataFrame(rows, columns=["c0", "c1", "c2"])
    nulls = frame["c1"].isna()
    numbers = [0 if row[1] is None else row[1] for row in rows]
    return pd.DataFrame(
        {
            "c0": frame["c0"],
            "c1": np.array(numbers, dtype=np.int64),
            "c2": frame["c2"],
            "nulls0": np.where(nulls, 2, 0).astype(np.int64),
            GROUP_COLUMN: np.zeros(len(rows), dtype=np.int32),
        }
    )


MEASURED = """
import resource, sys
import attrs
import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
from millpond.functions.functions import SubtaskInfo
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.worker.gc_control import gc_paused
from millpond_spark.worker.runner import SubtaskRunner
from tests.operator_plans import plan_of
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

ROWS, FRAME_ROWS = 2_000_000, 50_000

class Number(mp.KeyedProcessFunction):
    def process_element(self, row, context):
        yield row.n, row.n, None

def frames():
    draw = np.random.default_rng(1)
    fixed = {"nulls0": np.zeros(FRAME_ROWS, int), GROUP_COLUMN: np.zeros(FRAME_ROWS, np.int32)}
    for _ in range(ROWS // FRAME_ROWS):
        numbers = draw.integers(0, 1 << 60, FRAME_ROWS)
        texts = np.array([f"text {number:030d}" for number in numbers.tolist()], object)
        yield pd.DataFrame({"c0": numbers % 1000, "c1": numbers, "c2": texts, **fixed})

schema = StructType().add("k", LongType()).add("n", LongType()).add("s", StringType())
plan = plan_of("number", Number(), schema, mp.Config({}), "heap")
plan = attrs.evolve(plan, order_by=tuple(map(int, sys.argv[1:])))
rows, last, in_order = 0, -1, True
with (
    gc_paused(),
    mp.open_keyed_backend("heap", key_type=int, max_parallelism=1) as backend,
    mp.open_operator_backend() as operator_state,
):
    runner = SubtaskRunner(plan, SubtaskInfo("number", 0, 1, 1), backend, operator_state)
    with runner.operator.opened():
        for frame in runner.run(frames(), None):
            numbers = frame["c0"]
            in_order &= numbers.is_monotonic_increasing and int(numbers.iloc[0]) >= last
            rows, last = rows + len(frame), int(numbers.iloc[-1])
assert rows == ROWS
print(in_order, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def measured(*positions):
    """Return whether a subtask's two million rows are in order, and its process's peak memory in MB."""
    child = in_a_child(MEASURED, *map(str, positions), timeout=600)
    assert child.returncode == 0, child.stderr
    told, peak = child.stdout.split()
    return told == "True", int(peak)


@pytest.mark.soak
def test_two_million_rows_in_one_batch():
    """Ordering two million rows takes at most 100 MB more than processing them unordered."""
    unordered, plain = measured()
    ordered, peak = measured(1, 2)
    assert (unordered, ordered) == (False, True)
    assert peak - plain < 100, (plain, peak)
