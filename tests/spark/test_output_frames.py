"""The frames in which yielded rows reach Spark: few columns as lists, many columns directly."""

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import millpond as mp
import pandas as pd
import pyarrow as pa
import pytest
from millpond.spark import key_by
from millpond_spark.values.output_frames import OutputCodec, list_offsets
from pyspark.sql.types import DoubleType, LongType, StructType

from tests.arriving import values_of
from tests.spark.streaming import run

NAN = float("nan")
COUNT = 300
"""A number of rows that fills several lists, except the last."""
VALUES = {
    "double": [0.5, NAN, None, -0.0],
    "float": [0.5, NAN, None],
    "bigint": [2**53 + 1, None, -1],
    "tinyint": [127, None],
    "boolean": [True, None, False],
    "string": ["a", None, "", "ä\0b"],
    "binary": [b"a", None, b"\0"],
    "decimal(20,3)": [Decimal("1.500"), None],
    "timestamp": [dt.datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=dt.UTC), None],
    "array<double>": [[1.0, NAN, None], None, []],
}


class Copies(mp.KeyedProcessFunction):
    """Function that yields a number of numbered rows for each row, with columns of several values."""

    def __init__(self, *columns):
        self.columns = columns

    def process_element(self, row, context):
        for number in range(row.n):
            yield (number, *(values[number % len(values)] for values in self.columns))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kinds", [[*VALUES][:7], [*VALUES][7:], [*VALUES]])
@pytest.mark.parametrize("streaming", [False, True])
def test_each_row_comes_out_as_it_was_yielded(spark, job_conf, files, tmp_path, kinds, streaming):
    """Each row arrives unchanged, in lists or in direct columns; null is not NaN."""
    job_conf(state_backend="heap", parallelism=2)
    columns = [VALUES[kind] for kind in kinds]
    schema = "n int, " + ", ".join(f"v{at} {kind}" for at, kind in enumerate(kinds))
    files.add(("k", COUNT))
    rows = files.stream() if streaming else spark.createDataFrame([("k", COUNT)], files.schema)
    out = key_by(rows, "k").process(Copies(*columns), output=schema, uid="copies")
    assert OutputCodec.from_schema(out.schema, in_lists=streaming).lists == (
        streaming and len(kinds) < 8
    )
    if streaming:
        run(out, tmp_path)
        out = spark.read.parquet(str(tmp_path / "query" / "output"))
    found = sorted(out.collect(), key=lambda row: row.n)
    given = [(n, *(values[n % len(values)] for values in columns)) for n in range(COUNT)]
    plain = spark.createDataFrame(given, schema).collect()
    assert [repr(tuple(row)) for row in found] == [repr(tuple(row)) for row in plain]


def test_columns_with_the_names_of_carried_ones(spark):
    """Columns of the user may be named like internal ones, such as c0."""
    rows = spark.createDataFrame([("k", 2)], "k string, n int")
    out = key_by(rows, "k").process(Copies(["a"]), output="c0 tinyint, c1 string", uid="named")
    assert out.schema.simpleString() == "struct<c0:tinyint,c1:string>"
    assert sorted(map(tuple, out.collect())) == [(0, "a"), (1, "a")]


@pytest.mark.parametrize(("size", "most"), [(8, 162), (400, 3), (5000, 1)])
def test_a_list_is_of_so_many_bytes(size, most):
    """A list has a limited number of bytes, so wide rows have lists of one row."""
    column = pa.array([b"x" * (size - 4)] * 999)
    offsets = list_offsets([column]).to_pylist()
    assert (offsets[0], offsets[-1]) == (0, 999)
    assert max(end - start for start, end in pairwise(offsets)) == most


def test_a_frame_of_lists_holds_each_value():
    """A frame of lists contains each value at its place; all columns have lists of the same lengths."""
    schema = StructType().add("n", LongType()).add("d", DoubleType())
    codec = OutputCodec.from_schema(schema, in_lists=True)
    rows = [(number, None if number % 3 else number / 2) for number in range(999)]
    frame = codec.frame(codec.columns(rows, "op"))
    assert len(frame) < 20
    assert values_of(frame) == [list(column) for column in zip(*rows, strict=True)]
    assert [len(part) for part in frame["c0"]] == [len(part) for part in frame["c1"]]


@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation")
def test_a_frame_is_padded_to_several_states():
    """If subtasks share a partition and yield few rows, a frame is padded as in PySpark."""
    codec = OutputCodec.from_schema(StructType().add("n", LongType()), in_lists=True)
    frame = codec.frame(codec.columns([(1,), (2,)], "op"))
    nothing = pd.DataFrame({"c0": None}, index=range(2))
    joined = pd.concat([frame, nothing], ignore_index=True)
    assert pa.Array.from_pandas(joined["c0"]).to_pylist() == [[1, 2], None, None]


@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation")
@pytest.mark.parametrize("empty", [0, 2])
def test_a_column_without_values_precedes_one_with_values(empty):
    """If a column has only nulls in the first of several frames, it is still one Arrow array."""
    codec = OutputCodec.from_schema(StructType().add("n", LongType()).add("d", DoubleType()))
    frames = [codec.frame(codec.columns([row], "op")) for row in ((1, None), (2, NAN), (None, 3.0))]
    nothing = pd.DataFrame({"c0": None, "c1": None}, index=range(empty))
    joined = pd.concat([*frames, nothing], ignore_index=True)
    arrays = [pa.Array.from_pandas(joined[name]) for name in joined]
    pa.RecordBatch.from_arrays(arrays, names=["c0", "c1"])
    nulls = [None] * empty
    assert arrays[0].to_pylist() == [1, 2, None, *nulls]
    assert repr(arrays[1].to_pylist()) == repr([None, NAN, 3.0, *nulls])
