"""Bulk calls with pandas input: nullable types, objects, and values that are no column."""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors


@pytest.mark.parametrize("kind", ["Float64", "Int64", "double[pyarrow]"])
def test_a_null_of_pandas_is_no_element(kind):
    """A null of pandas is refused as an element, with and without positions."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", mp.functions.sum, float)
        )
        for positions in (None, [0, 0], np.array([0, 0])):
            keys = ["a"] if positions is not None else ["a", "b"]
            with pytest.raises(errors.NullValueError):
                state.add_many(keys, pd.Series([1, None], dtype=kind), positions)


@pytest.mark.parametrize("kind", ["Float64", "double[pyarrow]", "float64"])
def test_numbers_of_pandas_are_elements(kind):
    """Numbers of each type are reduced if there is no null; NaN in NumPy's floats is a value."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", mp.functions.sum, float)
        )
        state.add_many(["a", "b"], pd.Series([1, 2, 4], dtype=kind), np.array([0, 1, 0]))
        assert state.get_many(["a", "b"]).to_pylist() == [5.0, 2.0]
        state.add_many(["a"], pd.Series([1, None], dtype="float64"), np.array([0, 0]))
        assert np.isnan(state.get_many(["a"]).to_pylist()[0])


@pytest.mark.parametrize(
    "given",
    [pd.DataFrame({"v": [1]}), pd.NA, pd.NaT, pd.Timestamp(0), np.int64(1), np.zeros((1, 1))],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_column_is_refused(given):
    """A table or a single value is refused with the documented error."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        total = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", mp.functions.sum, int)
        )
        with pytest.raises(errors.ArgumentTypeError, match="an array of one dimension"):
            state.update_many(["a"], given)
        with pytest.raises(errors.ArgumentTypeError, match="an array of one dimension"):
            total.add_many(["a"], given, np.array([0]))


ENCODED = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([1.0, None]))


@pytest.mark.parametrize(
    "column",
    [
        np.ma.masked_array([1.0, 99.0], [False, True]),
        ENCODED,
        pd.Series(pd.arrays.ArrowExtensionArray(ENCODED)),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2]), pa.array([1.0, None])),
    ],
    ids=["masked", "dictionary", "dictionary in pandas", "runs"],
)
def test_a_null_that_is_not_counted_is_no_element(column):
    """A masked or encoded null is refused as an element, also if positions are an array."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", mp.functions.sum, float)
        )
        for positions in ([0, 0], np.array([0, 0])):
            with pytest.raises(errors.NullValueError):
                state.add_many(["a"], column, positions)


def test_masked_positions_are_refused():
    """Masked positions are refused, in an array and in a list."""
    positions = np.ma.masked_array([0, 0], [False, True])
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", mp.functions.sum, float)
        )
        with pytest.raises(errors.BulkCallError, match="one is NoneType"):
            state.add_many(["a"], np.array([1.0, 2.0]), positions)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (date, [date(2026, 1, 1), datetime(2026, 1, 1, 12)]),
        (bytes, [b"a", "b"]),
        (float, [1.5, True]),
        (float, [1.5, "a"]),
        (float, [1.5, object()]),
    ],
)
def test_objects_of_pandas_are_checked_as_a_list_is(kind, values):
    """Objects are checked like a list: none is changed, and a wrong one is refused with its key."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
        for column in (values, pd.Series(values, dtype=object)):
            with pytest.raises(errors.StateTypeError, match="state 'v', key str 'b'"):
                state.update_many(["a", "b"], column)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (int, [1, None, 2**70]),
        (datetime, [datetime(2026, 1, 1), None, datetime(2026, 1, 1, tzinfo=UTC)]),
    ],
)
def test_objects_of_pandas_are_stored_as_they_are(kind, values):
    """Integers of any size, and datetimes with and without zone, are stored unchanged; pandas' nulls are nulls."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
        state.update_many(["a", "b", "c"], pd.Series(values, dtype=object))
        assert [state.at(key).value() for key in "abc"] == values


class Colour(StrEnum):
    """An enum whose members are strings."""

    RED = "r"


class Pair(NamedTuple):
    """A named tuple."""

    a: int
    b: int


class Own(pd.Series):
    """A user's subclass of Series."""


@pytest.mark.parametrize("made", [pd.Series, pd.Index, Own], ids=lambda made: made.__name__)
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Decimal, [Decimal(1), Decimal("1.50")]),
        (Decimal, [Decimal("1E+3"), Decimal("0.5")]),
        (dict[str, int | None], [{"a": 1}, {"b": 2}]),
        (int | float, [1, 2.5]),
        (list[int | float], [[1], [2.5]]),
        (tuple[int, int], [(1, 2), (3, 4)]),
        (set[int], [{1}, {2, 3}]),
        (Pair, [Pair(1, 2), Pair(3, 4)]),
        (Colour, [Colour.RED, Colour.RED]),
    ],
    ids=repr,
)
def test_objects_of_pandas_are_no_others(made, kind, values):
    """A column of objects gives the same result as the list of the objects."""
    column = made(pd.Series([*values, None], dtype=object))
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
        state.at("c").update(values[0])
        state.update_many(["a", "b", "c"], column)
        found = [state.at(key).value() for key in "abc"]
        assert list(map(repr, found)) == list(map(repr, [*values, None]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (str, ["a", Colour.RED]),
        (str, ["a", "\ud800"]),
        (dict[str, int], [{"a": 1}, {"b": None}]),
        (int, [1, b"a"]),
    ],
)
@pytest.mark.parametrize("dtype", [object, "category"])
def test_objects_that_do_not_fit_are_refused_as_in_a_list(kind, values, dtype):
    """Unsuitable objects are refused as in a list, with state and key, and without an error of Arrow."""
    if dtype == "category" and kind is not str:
        values = [values[0], "x"] if kind is int else [(1,), (2,)]
    column = pd.Series(values, dtype=object)
    if dtype == "category":  # pandas 3 would make strings of texts that are none
        column = pd.Series(
            pd.Categorical.from_codes([0, 1], pd.Index(values, object, tupleize_cols=False))
        )
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
        with pytest.raises(errors.StateTypeError, match="state 'v', key str '"):
            state.update_many(["a", "b"], column)


@pytest.mark.parametrize("dtype", [object, "category"])
def test_keys_of_objects_are_those_of_a_list(dtype):
    """Decimal keys in a column of objects keep their digits, which are part of the key."""
    keys = [Decimal(1), Decimal("1.5")]
    with mp.open_keyed_backend("heap", key_type=Decimal) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        state.update_many(keys, [1, 2])
        assert state.get_many(pd.Series(keys, dtype=object).astype(dtype)).to_pylist() == [1, 2]


def test_an_index_of_tuples_is_a_column_of_them():
    """A MultiIndex, which pandas makes of tuples, is read as a column of tuples."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", tuple[int, int]))
        state.update_many(["a", "b"], pd.Index([(1, 2), (3, 4)]))
        assert [state.at(key).value() for key in "ab"] == [(1, 2), (3, 4)]


def test_a_series_of_a_subclass_is_a_column_of_pandas():
    """A user's subclass of Series is accepted, with its nulls."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        state.update_many(["a", "b"], Own([1, None], dtype="Int64"))
        assert [state.at(key).value() for key in "ab"] == [1, None]


def test_lists_of_a_frame_of_pandas_are_lists():
    """Lists in a pandas frame, which are arrays there, become lists, also nested ones."""
    rows = [{"x": [[1], [2, 3]]}, {"x": []}]
    frame = pa.table({"v": rows}).to_pandas()
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(
            mp.ValueStateDescriptor("v", dict[str, list[list[int]]])
        )
        state.update_many(["a", "b"], frame["v"])
        assert [state.at(key).value() for key in "ab"] == rows


@pytest.mark.parametrize("positions", [None, [0], np.array([0])], ids=repr)
@pytest.mark.parametrize("value", ["1.0000000000000000009", "1e4000"])
def test_a_longdouble_is_no_float(value, positions):
    """A longdouble is refused as a float, also with positions as an array."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", mp.functions.sum, float)
        )
        with pytest.raises(errors.StateTypeError, match="expected float, got longdouble"):
            state.add_many(["a"], np.array([np.longdouble(value)]), positions)
