"""Objects in a DataFrame that a function returns: rows with names, and NumPy values."""

from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

import attrs
import numpy as np
import pandas as pd
import pytest
from millpond import errors
from millpond.operator.arrow_results import ResultTable
from millpond.types.rows import row_maker, row_type
from millpond_spark.values.output_frames import OutputCodec
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, DoubleType, MapType, StringType, StructField, StructType


class Point(NamedTuple):
    """A named tuple whose fields have another order than the column's."""

    y: float
    x: float


@attrs.frozen
class Place:
    """A class with the same fields that is not a tuple."""

    y: float
    x: float


NAMED = {
    "named tuple": Point(1.0, 2.0),
    "Row of Spark's": Row(y=1.0, x=2.0),
    "Row": row_maker(row_type(("y", "x")))([1.0, 2.0]),
    "attrs": Place(1.0, 2.0),
    "dict": {"y": 1.0, "x": 2.0},
    "mapping": MappingProxyType({"y": 1.0, "x": 2.0}),
}
STRUCT = StructType([StructField(name, DoubleType()) for name in "xy"])


def objects(*values):
    """Return a DataFrame with one column of objects."""
    return pd.DataFrame({"v": pd.Series([*values, None], dtype=object).iloc[:-1]})


def carried(value, kind):
    """Return a DataFrame's value as it is encoded for a Spark column."""
    codec = OutputCodec.from_schema(StructType([StructField("v", kind)]))
    return codec.table_frame(ResultTable.from_returned(objects(value)), "op").iloc[0, 0]


def yielded(value, kind):
    """Return a yielded value as it is encoded for a Spark column."""
    codec = OutputCodec.from_schema(StructType([StructField("v", kind)]))
    return codec.columns([(value,)], "op")[0].to_pylist()[0]


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(
    ("within", "kind"),
    [
        (lambda row: row, STRUCT),
        (lambda row: [row], ArrayType(STRUCT)),
        (lambda row: [[], [row]], ArrayType(ArrayType(STRUCT))),
        (lambda row: {"a": row}, MapType(StringType(), STRUCT)),
        (lambda row: {"a": [row]}, StructType([StructField("a", ArrayType(STRUCT))])),
    ],
    ids=["alone", "array", "arrays", "map", "struct"],
)
def test_a_row_with_names_goes_by_them(name, within, kind):
    """A row with names is matched by name, as a yielded one; Arrow would take numbers for a list."""
    value = within(NAMED[name])
    assert carried(value, kind) == yielded(value, kind)


def test_a_row_without_names_goes_by_position():
    """A plain tuple, a list, and a Row without names are matched by position."""
    for value in ((1.0, 2.0), [1.0, 2.0], Row(1.0, 2.0)):
        assert carried(value, STRUCT) == yielded((1.0, 2.0), STRUCT)


MOMENT = datetime(2026, 1, 1, 12)
LONG = np.longdouble(1.5)
NUMPYS = [
    (np.float32(1.5), 1.5),
    (np.int64(1), 1),
    (np.bool_(True), True),
    (np.float64("nan"), None),
    (np.datetime64(MOMENT, "ns"), MOMENT),
    (np.timedelta64(1, "s"), timedelta(seconds=1)),
    (np.datetime64("NaT"), None),
    (np.str_("x\0"), "x\0"),
    (np.bytes_(b"x\0"), b"x\0"),
    (LONG, LONG),
    (np.array(7), 7),
    (np.array([[1.5, np.nan], [2.5, 3.5]]), [[1.5, None], [2.5, 3.5]]),
    (np.array([1, 2], np.uint8), [1, 2]),
    (np.array([MOMENT], "M8[s]"), [MOMENT]),
    (np.array([NAN := float("nan"), {"y": NAN}], object), [None, {"y": None}]),
    (np.ma.array([[1, 2]], mask=[[True, False]]), [[None, 2]]),
    (np.ma.masked, None),
    (pd.Series([1, None], dtype="Int64"), [1, None]),
    (pd.array([pd.Timestamp(MOMENT), pd.NaT]), [MOMENT, None]),
    (Decimal("NaN"), None),
    (Decimal("sNaN"), None),
    (pd.NaT, None),
]


@pytest.mark.parametrize(("value", "expected"), NUMPYS, ids=[repr(each) for each, _ in NUMPYS])
def test_what_is_of_numpy_or_pandas_is_pythons(value, expected):
    """NumPy and pandas values within a dict become Python's; a long double is refused."""
    (found,) = ResultTable.from_returned(objects({"x": value})).columns[0]
    assert found == {"x": expected}
    assert type(found["x"]) is type(expected)


class Tensor:
    """An object like a tensor, whose elements are tensors."""

    dtype, ndim, shape = "float32", 1, (1,)

    def __iter__(self):
        return iter([self])

    def reshape(self, *_):
        return self

    def __eq__(self, other):
        raise ValueError("one truth of many elements")

    __hash__ = None


def test_what_is_no_array_of_numpy_stays_what_it_is():
    """An object that is not a NumPy array is not converted, and the output's column refuses it."""
    tensor = Tensor()
    ((found,),) = ResultTable.from_returned(objects({"x": tensor})).columns
    assert found["x"] is tensor
    with pytest.raises(errors.OutputTypeError, match="column 'v'"):
        carried({"x": tensor}, MapType(StringType(), DoubleType()))


def looped():
    """Return a mapping that contains itself."""
    held = {}
    held["x"] = MappingProxyType(held)
    return held["x"]


@pytest.mark.parametrize(
    "value",
    [
        looped(),
        pd.DataFrame({"x": [1]}),
        pd.Timestamp(np.datetime64("20000-01-01", "s")),
        np.array([1], "M8[ns]"),
    ],
    ids=["a mapping in itself", "DataFrame", "year 20000", "nanoseconds"],
)
def test_what_cannot_be_read_is_refused_by_its_column(value):
    """An object that cannot be read is refused with the column's name."""
    with pytest.raises(errors.MillpondError, match="column 'v': expected"):
        ResultTable.from_returned(objects({"x": value}))
