"""Bulk calls with what pandas gives: nullable types, objects, and what is no column."""

from datetime import UTC, date, datetime

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors


@pytest.mark.parametrize("kind", ["Float64", "Int64", "double[pyarrow]"])
def test_a_null_of_pandas_is_no_element(kind):
    """It is refused as it is without positions, where it once became NaN for good."""
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
    """A column without nulls is reduced whatever its type; NaN in NumPy's floats is a value."""
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
    """A table, or a single value, is told apart from a column by the documented error."""
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
    """What a mask hides was added, and an encoded null became NaN, where positions are an array."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", mp.functions.sum, float)
        )
        for positions in ([0, 0], np.array([0, 0])):
            with pytest.raises(errors.NullValueError):
                state.add_many(["a"], column, positions)


def test_masked_positions_are_refused():
    """A position that is hidden is none, in an array as in a list."""
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
    """No value is changed to fit the others, and what does not fit is told with its key."""
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
    """Whole numbers of any size, and datetimes with and without a zone; its nulls are nulls."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
        state.update_many(["a", "b", "c"], pd.Series(values, dtype=object))
        assert [state.at(key).value() for key in "abc"] == values
