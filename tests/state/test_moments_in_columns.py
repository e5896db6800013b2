"""Bulk calls with NumPy's and pandas' moments and durations of every unit."""

from datetime import UTC, date, datetime, timedelta

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors
from millpond.types.column_input import column_values

UNITS = ["Y", "M", "W", "h", "m", "s", "ms", "us", "ns"]


def kept(kind, column):
    """Return a state's content after a bulk update with a column of one value."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
        state.update_many(["a"], column)
        backend.set_current_key("a")
        return state.value()


@pytest.mark.parametrize("unit", UNITS)
def test_moments_of_each_unit_are_datetimes(unit):
    """Moments of NumPy and pandas, and lists of them, become datetimes; a state of numbers refuses them."""
    moments = np.array(["2020-01-01"], "M8[s]").astype(f"M8[{unit}]")
    wanted = moments.astype("M8[us]")[0].item()
    assert kept(datetime, moments) == wanted
    assert kept(list[datetime], pd.Series([moments])) == [wanted]
    for number, column in ((int, moments), (list[int], pd.Series([moments]))):
        with pytest.raises(errors.StateTypeError):
            kept(number, column)


@pytest.mark.parametrize("unit", ["W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_durations_of_each_unit_are_timedeltas(unit):
    """Durations of fixed length become timedeltas, also in Arrow columns."""
    durations = np.array([14 * 86_400_000_000_000], "m8[ns]").astype(f"m8[{unit}]")
    columns = [durations, pd.Series(durations), pa.array(durations.astype("m8[ns]"))]
    for column in columns:
        assert (type(kept(timedelta, column)), kept(timedelta, column)) == (
            timedelta, timedelta(14),
        )  # fmt: skip
        with pytest.raises(errors.StateTypeError):
            kept(int, column)
    assert kept(list[timedelta], pd.Series([durations])) == [timedelta(14)]


@pytest.mark.parametrize(
    "column",
    [
        np.array([1], "m8[ns]"),
        np.array([1], "M8[ns]"),
        np.array([1], "m8[ps]"),
        np.array([1], "m8[M]"),
        np.array([1], "m8"),
        pd.Series(np.array([1], "m8[ns]")),
        pd.Series([np.array([1], "m8[ns]")]),
        pa.array([1], pa.duration("ns")),
        np.array(["99999-01-01"], "M8[us]"),
        pa.array([[1]], pa.list_(pa.timestamp("ns"))),
    ],
    ids=lambda column: str(getattr(column, "dtype", "arrow")),
)
def test_what_is_no_moment_of_python_is_refused(column):
    """Nanoseconds, months as durations, and years of five digits are refused by name."""
    with pytest.raises(errors.ArgumentValueError, match=r"moments|durations"):
        kept(int, column)


def test_days_are_dates_and_what_is_no_time_is_null():
    """NumPy's days are dates; its NaT clears a value like None."""
    assert kept(date, np.array(["2020-01-01"], "M8[D]")) == date(2020, 1, 1)
    assert kept(datetime, np.array(["NaT"], "M8[ms]")) is None
    assert kept(timedelta, np.array(["NaT"], "m8[ms]")) is None


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+05:30"])
def test_the_last_hours_of_a_zone_are_moments_too(zone):
    """A moment that exceeds year 9999 only in its zone is accepted, and comes back in UTC."""
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    column = pa.array([last], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    assert kept(datetime, column) == last
    assert kept(list[datetime], pa.ListArray.from_arrays([0, 1], column)) == [last]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+05:30"])
def test_the_last_hours_of_a_zone_within_arrows_values(zone):
    """Moments that exceed year 9999 only in their zone are accepted inside nested Arrow values too."""
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    column = pa.array([last], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    late = pa.array([2**60], pa.timestamp("us", zone))
    for make, wanted in (
        (lambda held: pa.ListArray.from_arrays([0, 1], held), [last]),
        (lambda held: pa.FixedSizeListArray.from_arrays(held, 1), [last]),
        (lambda held: pa.StructArray.from_arrays([held], ["x"]), {"x": last}),
        (lambda held: pa.MapArray.from_arrays([0, 1], pa.array(["a"]), held), [("a", last)]),
        (lambda held: held.dictionary_encode(), last),
    ):
        assert column_values(make(column), "v") == [wanted]
        assert column_values(pa.chunked_array([make(column)]), "v") == [wanted]
        with pytest.raises(errors.ArgumentValueError, match="moments of the years 1 to 9999"):
            column_values(make(late), "v")


NANOS = pa.timestamp("ns")


@pytest.mark.parametrize(
    "kind",
    [
        NANOS,
        pa.list_(NANOS),
        pa.large_list(NANOS),
        pa.list_(NANOS, 1),
        pa.list_(pa.struct([("x", NANOS)])),
        pa.map_(pa.string(), NANOS),
        pa.struct([("x", pa.list_(NANOS))]),
    ],
    ids=str,
)
def test_moments_within_arrows_values_are_pythons(kind):
    """Moments of any unit inside nested Arrow values equal those in a plain column."""
    moment = pd.Timestamp("2026-01-01 12:00:00.000001")

    def value(of):
        if pa.types.is_struct(of):
            return {"x": value(of.field("x").type)}
        if pa.types.is_map(of):
            return [("x", value(of.item_type))]
        return [value(of.value_type)] if hasattr(of, "value_field") else moment

    def leaf(held):
        while isinstance(held, (list, dict, tuple)):
            held = list(held.values())[-1] if isinstance(held, dict) else held[-1]
        return held

    column = pa.array([value(kind), None], kind)
    within = pa.StructArray.from_arrays([column], ["x"])
    assert type(leaf(column_values(within, "v")[0])) is datetime
    for given in (column, pa.chunked_array([column])):
        found, nothing = column_values(given, "v")
        assert type(leaf(found)) is datetime
        assert (leaf(found), nothing) == (moment.to_pydatetime(), None)


def masked(column, nulls):
    """Return structs of a column's values; null structs hide values."""
    return pa.StructArray.from_arrays([column], ["x"], mask=pa.array(nulls))


@pytest.mark.parametrize("kind", [NANOS, pa.duration("ns"), pa.time64("ns")], ids=str)
def test_what_lies_under_a_null_is_no_value(kind):
    """Nanoseconds under a null struct are ignored, at any depth; others are refused."""
    rows = masked(pa.array([1, 2000, 3], kind), [True, False, True])
    made = column_values(pa.array([2000], kind), "v")[0]
    here = [None, {"x": made}, None]
    nulls = pa.array([True, False, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3]), rows, mask=nulls)
    large = pa.LargeListArray.from_arrays([0, 1, 1, 3], rows)
    for given, wanted in (
        (rows, here),
        (rows.slice(1), here[1:]),
        (pa.chunked_array([rows, rows]), here * 2),
        (masked(rows, [False, False, True]), [{"x": None}, {"x": {"x": made}}, None]),
        (masked(rows, [True, True, True]), [None] * 3),
        (lists, [None, here[1:], []]),
        (lists.slice(1), [here[1:], []]),
        (masked(lists, [True, False, False]), [None, {"x": here[1:]}, {"x": []}]),
        (large, [[None], [], here[1:]]),
    ):
        assert column_values(given, "v") == wanted
    for lost in (masked(pa.array([1], kind), [False]), masked(rows.field(0), [True, True, False])):
        with pytest.raises(errors.ArgumentValueError, match="in whole microseconds"):
            column_values(lost, "v")


@pytest.mark.parametrize("kind", [NANOS, pa.duration("ns"), pa.time64("ns")], ids=str)
def test_what_lies_under_other_nulls_is_no_value(kind):
    """Values under null maps, null fixed-size lists and lists in null lists are ignored too."""
    held, nulls = pa.array([1, 3, 2000, 4000], kind), pa.array([True, False])
    two, four = column_values(held[2:], "v")
    pairs = pa.FixedSizeListArray.from_arrays(held, 2, mask=nulls)
    letters = pa.array(["a", "b"] * 2)
    maps = pa.MapArray.from_arrays(pa.array([0, 2, 4]), letters, held, mask=nulls)
    deep = pa.ListArray.from_arrays([0, 2], pairs)
    for given, wanted in (
        (pairs, [None, [two, four]]),
        (maps, [None, [("a", two), ("b", four)]]),
        (deep, [[None, [two, four]]]),
        (pa.ListArray.from_arrays(pa.array([0, 1, 2]), pairs, mask=nulls), [None, [[two, four]]]),
        (pa.ListArray.from_arrays(pa.array([0, 1]), deep, mask=nulls[:1]), [None]),
    ):
        assert column_values(given, "v") == wanted
        assert column_values(given[:1], "v") == wanted[:1]


def test_moments_that_are_all_masked_are_nulls():
    """A fully masked column of moments has only nulls, also of a unit that Arrow does not have."""
    hours = np.array(["2020-01-01T01", "2020-01-01T02"], "M8[h]")
    assert column_values(np.ma.array(hours, mask=True), "v") == [None, None]
    assert column_values(np.ma.array(hours, mask=[True, False]), "v") == [
        None,
        datetime(2020, 1, 1, 2),
    ]


def test_moments_of_a_dictionary_are_pythons():
    """Moments in a dictionary-encoded column, such as a pandas category, become datetimes."""
    moments = pd.Series([pd.Timestamp("2026-01-01")]).astype("category")
    for column in (moments, pa.Array.from_pandas(moments)):
        assert [type(value) for value in column_values(column, "v")] == [datetime]
