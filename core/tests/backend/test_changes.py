"""Changed rows as columns and as pairs."""

import operator

from hypothesis import given
from hypothesis import strategies as st
from millpond.spi.portable_rows import Changes, serialized
from millpond.types import serializer_for

ROWS = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)))


@given(ROWS, st.integers(-3, 3), st.integers(-3, 3))
def test_columns_are_the_sequence_of_their_pairs(rows, start, end):
    """Length, elements, slices, iteration and size are those of the list of pairs."""
    changes = Changes.from_rows(iter(rows))
    assert list(changes) == rows
    assert len(changes) == len(rows)
    assert list(changes[start:end]) == rows[start:end]
    assert [changes[at] for at in range(len(rows))] == rows
    assert changes.size == sum(len(key) + len(value or b"") for key, value in rows)
    assert Changes.from_rows(changes) is changes


@given(ROWS)
def test_changes_in_order_are_sorted_by_key(rows):
    """Sorting keeps each row's value; sorted changes remain unchanged."""
    rows = list(dict(rows).items())  # an entry has one row
    expected = sorted(rows, key=operator.itemgetter(0))
    changes = Changes.from_rows(rows)
    assert list(changes.in_order()) == expected
    if rows == expected:
        assert changes.in_order() is changes


@given(st.lists(st.none() | st.floats(), max_size=5), st.lists(st.none() | st.integers()))
def test_a_column_of_values_is_written_as_each_by_itself(floats, numbers):
    """A column of values is encoded like single values; None remains None."""
    for kind, values in ((float, floats), (int, numbers)):
        one = serializer_for(kind)
        singly = [None if value is None else one.serialize(value) for value in values]
        assert serialized(one, values) == singly
