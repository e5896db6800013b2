"""Columns that are encoded or decoded together give the same result as value by value."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from millpond.errors import OutputTypeError
from millpond_spark.values.nested import carrier_for
from millpond_spark.values.output_frames import OutputCodec
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

CARRIED = st.integers(-(2**63), 2**63 - 1)
LEAST, GREATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Python's smallest and largest moment in microseconds."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
AWKWARD = st.sampled_from(
    [1, True, 0, 1.5, 2**40, "a", "\ud800", b"a", np.int64(3), np.datetime64("2024-01-01"), pd.NaT]
)


class Unsure(dt.tzinfo):
    """A zone with the given offset, or None."""

    def __init__(self, offset):
        self.offset = offset

    def utcoffset(self, moment):
        return self.offset


MOMENTS = st.datetimes(timezones=st.none() | st.sampled_from([dt.UTC, ZoneInfo("Europe/Paris")]))
VALUES = (
    st.none() | AWKWARD | MOMENTS | st.dates() | st.integers(-3, 2**32) | st.floats() | st.text()
)
ALIKE = st.sampled_from([MOMENTS, st.datetimes(), st.dates(), st.integers(0, 9), st.text()])
COLUMNS = st.lists(VALUES, min_size=1, max_size=5) | ALIKE.flatmap(
    lambda values: st.lists(st.none() | values, min_size=1, max_size=5)
)
TYPES = [
    BooleanType(),
    DateType(),
    DoubleType(),
    FloatType(),
    IntegerType(),
    LongType(),
    StringType(),
    TimestampNTZType(),
    TimestampType(),
]


def outcome(call):
    """Return the result of a call, or the class of its error."""
    try:
        return call()
    except (OverflowError, ValueError):  # a value out of Python's range, by Python or by NumPy
        return ValueError
    except Exception as error:  # noqa: BLE001 - whatever it is
        return type(error)


@pytest.mark.parametrize("declared", [DateType(), TimestampType(), TimestampNTZType()], ids=str)
@given(st.lists(CARRIED | st.integers(LEAST, GREATEST) | st.integers(FIRST_DAY, LAST_DAY)))
@example([LEAST, GREATEST, 0])
@example([GREATEST + 1, 0])
@example([LEAST - 1])
@example([FIRST_DAY, LAST_DAY])
@example([LAST_DAY + 1])
@example([-(2**63)])
def test_many_are_decoded_as_each_by_itself(declared, values):
    """Moments and days in Python's range are decoded, and others fail, in both ways."""
    carrier = carrier_for("c", declared)
    single = outcome(lambda: [carrier.decode(value) for value in values])
    assert outcome(lambda: carrier.decode_many(list(values))) == single


def narrowed(declared, found):
    """Return encoded values as Spark casts them for a float column."""
    if isinstance(found, list) and isinstance(declared, FloatType):
        return [value if value is None else float(np.float32(value)) for value in found]
    return found


@pytest.mark.parametrize("declared", TYPES, ids=str)
@pytest.mark.parametrize("nullable", [True, False])
@given(COLUMNS)
def test_a_column_is_packed_as_each_value_by_itself(declared, nullable, values):
    """Encoding a column gives the same values or refusal as each value, with nulls and several zones."""
    codec = OutputCodec.from_schema(StructType([StructField("c", declared, nullable)]))
    rows = [(value,) for value in values]
    each = outcome(lambda: codec._pack_each(0, values, rows, "u"))
    found = outcome(lambda: codec.columns(rows, "u")[0].to_pylist())
    assert repr(narrowed(declared, found)) == repr(narrowed(declared, each))


NAIVE = dt.datetime(2024, 1, 1)


@pytest.mark.parametrize("declared", [TimestampType(), TimestampNTZType()], ids=str)
@pytest.mark.parametrize("offset", [None, dt.timedelta(days=2)])
@pytest.mark.parametrize("before", [[], [NAIVE], [NAIVE, None]])
def test_a_moment_in_a_zone_that_does_not_know_is_refused(declared, offset, before):
    """A moment in a zone without an offset is refused with the column's name, and not taken for a naive one."""
    codec = OutputCodec.from_schema(StructType([StructField("c", declared)]))
    rows = [(value,) for value in [*before, NAIVE.replace(tzinfo=Unsure(offset))]]
    with pytest.raises(OutputTypeError, match="output column 'c'"):
        codec.columns(rows, "u")
