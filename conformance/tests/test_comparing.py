"""Exact comparison distinguishes values that are equal for ``==``, at any depth."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import attrs
import pytest
from millpond_conformance.comparing import assert_same, by_key, difference, mutate


class Point(NamedTuple):
    """A named tuple."""

    x: float


@attrs.define
class Price:
    """A class with a field."""

    amount: Decimal | None


PAIRS = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (Decimal("1.2"), Decimal("1.20")),
    (Decimal(0), Decimal("-0")),
    ((1.0,), Point(1.0)),
    ((1,), [1]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: "a"}, {True: "a"}),
    ({1}, frozenset({1})),
    (Price(Decimal("1.0")), Price(Decimal("1.00"))),
    (b"a", bytearray(b"a")),
    (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, fold=1, tzinfo=UTC)),
    (None, 0),
]
"""Values that are equal in Python, or nearly equal, and not the same."""
AROUND = [lambda v: v, lambda v: [None, v], lambda v: {"a": (v, 1)}, lambda v: Price([v])]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_what_is_not_the_same(one, other, around):
    """Types, scales, signs of zero, orders and nulls are compared at any depth; each value equals itself."""
    assert difference(around(one), around(one)) == ""
    assert difference(around(one), around(other)).count("expected") == 1
    with pytest.raises(AssertionError, match="the place"):
        assert_same(around(other), around(one), "the place")


def test_what_is_the_same():
    """NaN is the same as NaN, a set has no order, and entries can be sorted."""
    assert_same([float("nan"), Decimal("NaN")], [float("nan"), Decimal("NaN")])
    assert_same({"a", "b"}, {"b", "a"})
    assert_same(by_key({"b": 1, "a": 2}), by_key({"a": 2, "b": 1}))
    assert difference([1, [2, 3]], [1, [2, 4]]) == "at [1][1]: expected 4, got 3"
    assert difference([1], [1, None]) == "expected [1, None], got [1]"


def test_a_value_is_emptied_at_every_depth():
    """Lists and dictionaries are emptied also inside tuples and objects."""
    inner, entries = [1], {"a": 1}
    price = Price(entries)
    mutate((inner, price))
    assert (inner, entries, price.amount) == ([], {}, None)
