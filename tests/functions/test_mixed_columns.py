"""Columns with values of different types, in rows and DataFrames; Arrow would change some of them."""

import tracemalloc
from datetime import UTC, date, datetime, time, timedelta, timezone

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors
from millpond.operator.arrow_results import ResultTable
from millpond.types.column_input import column_values

NAIVE = datetime(2026, 1, 1, 12)
AWARE = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=1)))
FINE = pd.Timestamp("2026-01-01 12:00:00.000000001")
WHOLE = pd.Timestamp("2026-01-01 12:00:00.000001")

MIXED = {
    "datetimes with and without time zone": (NAIVE, AWARE),
    "dates and datetimes": (date(2026, 1, 1), NAIVE),
    "texts and bytes": ("a", b"b"),
    "floats and bools": (1.5, True),
    "timestamps with nanoseconds": (FINE, WHOLE),
    "durations with nanoseconds": (pd.Timedelta(1001), pd.Timedelta(1000)),
    "timestamps outside the years 1 to 9999": (
        pd.Timestamp(np.datetime64("20000-01-01", "s")),
        WHOLE,
    ),
    "pandas durations in s or ms": (pd.Timedelta(5, "s").as_unit("s"), pd.Timedelta(1000)),
    "times with a time zone": (time(1, tzinfo=UTC), time(2)),
    "sets; a column has lists": ({1}, [2]),
    "dicts with different keys": ({"x": 1}, {"y": 2}),
}
ALIKE = [
    (NAIVE, NAIVE),
    (AWARE, datetime(2026, 1, 1, tzinfo=UTC)),
    (date(2026, 1, 1), date(2026, 1, 2)),
    (b"a", b"b"),
    (1.5, 2),
    ({"x": 1.5, "y": NAIVE}, {"x": 2, "y": None}),
    ([b"a", None], []),
    (WHOLE, None),
]


class Echo(mp.VectorizedProcessFunction):
    """Function that returns its rows."""

    def process_batch(self, rows, context):
        return rows


class Each(mp.KeyedProcessFunction):
    """Function that returns each row, for single rows."""

    def process_element(self, row, context):
        yield row.v


class Frame(mp.VectorizedProcessFunction):
    """Function that returns a DataFrame of two values for any rows."""

    def __init__(self, values):
        self.values = values

    def process_batch(self, rows, context):
        return pd.DataFrame({"v": pd.Series(self.values, dtype=object)})


def echoed(values):
    """Return the values of a column after a single frame."""
    rows = [{"k": "a", "v": value} for value in values]
    return [row.v for row in mp.local.run(Echo(), rows, key="k")]


@pytest.mark.parametrize("words", MIXED)
@pytest.mark.parametrize("order", [1, -1])
def test_no_value_of_a_frame_is_changed(words, order):
    """A column is refused if Arrow would have to change values for a common type, nested ones too."""
    values = MIXED[words][::order]
    for each in (values, [[v] for v in values], [{"x": [v]} for v in values], [None, *values]):
        with pytest.raises(mp.errors.ArgumentTypeError, match="columns of one type each"):
            echoed(each)


@pytest.mark.parametrize("values", ALIKE)
def test_values_that_keep_what_they_say_are_taken(values):
    """Nulls, integers with floats, and moments of several zones are accepted."""
    assert echoed(values) == list(values)


@pytest.mark.parametrize("words", MIXED)
def test_no_value_of_a_data_frame_is_changed(words):
    """A DataFrame column with mixed objects is refused by name, as input and as result."""
    frame = pd.DataFrame({"k": ["a", "a"], "v": pd.Series(MIXED[words], dtype=object)})
    with pytest.raises(mp.errors.ArgumentTypeError, match=f"column 'v': .*got {words}"):
        mp.local.run(Echo(), frame, key="k")
    if not words.startswith("dicts"):  # a result keeps the objects that the function has made
        with pytest.raises(mp.errors.UserFunctionError, match=f"column 'v': .*got {words}"):
            mp.local.run(Frame(MIXED[words]), [{"k": "a"}], key="k")


def test_nulls_of_pandas_are_no_other_kind():
    """None, NaN and NaT are nulls in a column of datetimes with a zone."""
    frame = pd.DataFrame(
        {"k": list("abcd"), "v": pd.Series([AWARE, None, float("nan"), pd.NaT], dtype=object)}
    )
    assert [row.v for row in mp.local.run(Echo(), frame, key="k")] == [AWARE, None, None, None]


def test_arrays_of_a_data_frame_are_not_made_objects():
    """The arrays in a DataFrame's column are not converted to Python objects, which need five times the memory."""
    arrays = [np.random.default_rng(at).random(1000) for at in range(200)]
    frame = pd.DataFrame({"v": pd.Series(arrays, dtype=object)})
    tracemalloc.start()
    try:
        ResultTable.from_returned(frame)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 200 * 1000  # a byte per number; Arrow's own memory is not traced


class EachRow(mp.KeyedProcessFunction):
    """Function that returns each row."""

    def process_element(self, row, context):
        yield row.v


@pytest.mark.parametrize("function", [Echo(), EachRow()], ids=["vectorized", "row by row"])
def test_moments_finer_than_microseconds_are_refused_by_their_column(function):
    """Nanoseconds are refused in columns of pandas and Arrow; whole microseconds are accepted."""
    for column in (pd.Series([FINE]), pd.Series([FINE]).dt.tz_localize("UTC")):
        with pytest.raises(mp.errors.MillpondError, match="column 'v': .*whole microseconds"):
            mp.local.run(function, pd.DataFrame({"k": ["a"], "v": column}), key="k")
    whole = pd.DataFrame({"k": ["a"], "v": pd.Series([WHOLE])})
    assert len(mp.local.run(function, whole, key="k")) == 1


@pytest.mark.parametrize("nanos", [1000, 1500])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.time64("ns"), time(0, 0, 0, 1)), (pa.timestamp("ns"), datetime(1970, 1, 1, 0, 0, 0, 1))],
)
def test_nanoseconds_in_any_form_of_arrow(kind, value, nanos):
    """Nanoseconds are refused in flat, nested and run-end-encoded columns too."""
    flat = pa.array([nanos], kind)
    forms = {
        "flat": (flat, value),
        "list": (pa.ListArray.from_arrays([0, 1], flat), [value]),
        "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), flat), value),
    }
    for form, (array, expected) in forms.items():
        if nanos == 1000:
            found = column_values(array, form)
            assert found == [expected]
            assert type(found[0]) is type(expected)
        else:
            with pytest.raises(mp.errors.ArgumentValueError, match=f"{form}: .*whole microseconds"):
                column_values(array, form)


@pytest.mark.parametrize("function", [Echo, Each])
@pytest.mark.parametrize(
    ("frame", "column"),
    [
        (pd.DataFrame({"k": ["a", "b"], "v": [1, "x"]}), "column v with"),
        (pd.DataFrame({"k": ["a"], "v": [1 << 70]}), "columns of Arrow"),
        (pd.DataFrame({"k": ["a"], "v": [object()]}), "column v with"),
        (pd.DataFrame([["a", 1, 2]], columns=["k", "v", "v"]), "Duplicate column names"),
        (pd.DataFrame({"k": ["a"], "v": [{1}]}), "sets; a column has lists"),
    ],
    ids=["mixed", "wide", "object", "twice", "sets"],
)
def test_a_frame_that_makes_no_table_is_refused_by_its_column(function, frame, column):
    """A frame that cannot become a table raises a MillpondError with the column's name."""
    with pytest.raises(errors.ArgumentTypeError) as caught:
        mp.local.run(function(), frame, key="k")
    assert column in str(caught.value)
