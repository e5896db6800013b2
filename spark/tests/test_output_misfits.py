"""A yielded value that its column cannot hold exactly is refused."""

import datetime as dt
import enum
import math
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from millpond import errors
from millpond_spark.values.output_frames import OutputCodec
from pyspark.sql import types as st

from tests.types.spark_type_language import HAS_TIME

US = dt.timedelta(microseconds=1)
DAY = dt.timedelta(days=1)
MISFITS = {
    "boolean": (st.BooleanType(), [0, 1, "true"]),
    "tinyint": (st.ByteType(), [128, -129, True, 1.0, "1"]),
    "smallint": (st.ShortType(), [2**15, -(2**15) - 1]),
    "int": (st.IntegerType(), [2**31, -(2**31) - 1]),
    "bigint": (st.LongType(), [2**63, -(2**63) - 1, 10**400, Decimal(1)]),
    "float": (st.FloatType(), [1e39, -1e39, 3.4028235677973366e38, 10**40, 2**53 + 1, "1"]),
    "double": (st.DoubleType(), [2**53 + 1, 10**400, Decimal(1), True]),
    "decimal(3,1)": (
        st.DecimalType(3, 1),
        [Decimal("100.0"), Decimal("0.01"), 100, Decimal("NaN"), Decimal("sNaN"), 1.5, True],
    ),
    "decimal(38,0)": (st.DecimalType(38, 0), [10**38, -(10**38), Decimal("1E+38"), Decimal("1E-9")]),
    "decimal(38,38)": (st.DecimalType(38, 38), [1, Decimal(1), Decimal("1E-39"), -Decimal("Inf")]),
    "string": (st.StringType(), ["\ud800", b"a", 1]),
    "binary": (st.BinaryType(), ["a", 1, [1]]),
    "date": (st.DateType(), [dt.datetime(2024, 1, 1), "2024-01-01", 1]),
    "timestamp": (
        st.TimestampType(),
        [dt.date(2024, 1, 1), pd.Timestamp(1, unit="ns", tz="UTC"), 1],
    ),
    "timestamp_ntz": (
        st.TimestampNTZType(),
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), pd.Timestamp(1, unit="ns")],
    ),
    "interval day to second": (
        st.DayTimeIntervalType(0, 3),
        [US * 2**63, -US * 2**63 - US, pd.Timedelta(1, unit="ns"), dt.timedelta.max, 1],
    ),
    "interval day": (st.DayTimeIntervalType(0, 0), [DAY - US, -DAY / 2, DAY / 24]),
    "interval hour to minute": (st.DayTimeIntervalType(1, 2), [US, dt.timedelta(seconds=59)]),
    "void": (st.NullType(), [0, ""]),
    "array": (st.ArrayType(st.LongType()), ["ab", 1, {1: 2}, {1}]),
    "map": (st.MapType(st.LongType(), st.LongType()), [{None: 1}, [(1, 2)], "a", {"1": 1}]),
    "map of floats": (
        st.MapType(st.FloatType(), st.LongType()),
        [{0.1: 1, 0.10000000149011612: 2}, {math.nan: 1, float("nan"): 2}],
    ),
    "map of timestamps": (
        st.MapType(st.TimestampType(), st.LongType()),
        [{dt.datetime(1970, 1, 1): 1, dt.datetime(1970, 1, 1, tzinfo=dt.UTC): 2}],
    ),
    "struct": (
        st.StructType().add("a", st.LongType()).add("b", st.LongType(), nullable=False),
        [(1,), (1, 2, 3), {"a": 1}, (1, None), 7, "ab"],
    ),
}  # fmt: skip
JUST_FITTING = [
    (st.FloatType(), [3.4028234663852886e38, -math.inf, 1e-50, 0.1]),
    (st.DecimalType(38, 0), [10**38 - 1, Decimal("1E+37"), Decimal("-0.0")]),
    (st.DecimalType(3, 1), [99, Decimal("99.90"), Decimal("1E+1")]),
    (st.TimestampType(), [pd.Timestamp("2024-01-01", tz="UTC"), dt.datetime(2024, 1, 1)]),
    (st.DayTimeIntervalType(0, 0), [DAY, -DAY, pd.Timedelta(days=1)]),
]
if HAS_TIME:
    MISFITS |= {
        "time(3)": (st.TimeType(3), [dt.time(0, 0, 0, 1), dt.time(1, tzinfo=dt.UTC), DAY]),
        "time(0)": (st.TimeType(0), [dt.time(23, 59, 59, 999999)]),
    }
    JUST_FITTING.append((st.TimeType(3), [dt.time(0, 0, 0, 1000)]))
FORMS = {
    "column": (lambda part: part, lambda value: value),
    "element": (st.ArrayType, lambda value: [None, value]),
    "item": (lambda part: st.MapType(st.StringType(), part), lambda value: {"k": value}),
    "field": (lambda part: st.StructType().add("f", part), lambda value: (value,)),
}


def refused(declared, value, *, nullable=True):
    """Return the error of a row with such a value, between valid rows."""
    schema = st.StructType().add("id", st.IntegerType()).add("the column", declared, nullable)
    rows = [(1, value)] if not nullable else [(0, None), (1, value), (2, None)]
    with pytest.raises(errors.OutputTypeError) as caught:
        OutputCodec.from_schema(schema).columns(rows, "op")
    return caught.value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MISFITS)
def test_what_does_not_fit_is_refused(kind, form):
    """The error names operator, column and row, at any depth of the type."""
    declared, values = MISFITS[kind]
    make, hold = FORMS[form]
    for value in values:
        error = refused(make(declared), hold(value))
        assert (error.operator_uid, error.column) == ("op", "the column")
        assert error.row.startswith("tuple (1, ")
        assert "in the row tuple (1, " in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", MISFITS)
def test_null_in_a_column_without_nulls_is_refused(kind):
    """``not null`` applies to columns, elements, map values and fields."""
    declared = MISFITS[kind][0]
    places = [
        (declared, None),
        (st.ArrayType(declared, False), [None]),
        (st.MapType(st.StringType(), declared, False), {"k": None}),
        (st.StructType().add("f", declared, False), (None,)),
    ]
    for place, value in places:
        assert "no nulls" in refused(place, value, nullable=False).reason


@pytest.mark.parametrize(("declared", "values"), JUST_FITTING)
def test_what_just_fits_is_taken(declared, values):
    """The extreme values of each type are accepted, single and nested."""
    for make, hold in FORMS.values():
        codec = OutputCodec.from_schema(st.StructType().add("c", make(declared), False))
        (column,) = codec.columns([(hold(value),) for value in values], "op")
        assert len(column) == len(values)


class Grade(enum.IntEnum):
    FIRST = 1


PLAIN = {
    "boolean": False,
    "tinyint": 1,
    "bigint": 0,
    "float": 1.5,
    "double": 0.0,
    "string": "a",
}


@pytest.mark.parametrize("kind", PLAIN)
def test_a_misfit_among_plain_values_is_refused(kind):
    """A wrong value in a column of plain values is refused, although the column is encoded together."""
    declared, values = MISFITS[kind]
    plain = PLAIN[kind]
    codec = OutputCodec.from_schema(st.StructType().add("c", declared))
    (column,) = codec.columns([(plain,)] * 3, "op")
    assert column.to_pylist() == [plain] * 3
    for value in values:
        with pytest.raises(errors.OutputTypeError) as caught:
            codec.columns([(plain,), (value,), (plain,)], "op")
        assert caught.value.row.startswith("tuple (")


@pytest.mark.parametrize("value", [np.int64(1), np.int8(0), Grade.FIRST])
def test_what_counts_as_a_whole_number_crosses_as_one(value):
    """NumPy's integers and members of an IntEnum are encoded as their numbers."""
    codec = OutputCodec.from_schema(st.StructType().add("c", st.LongType()))
    (column,) = codec.columns([(7,), (value,), (0,)], "op")
    assert column.to_pylist() == [7, int(value), 0]
