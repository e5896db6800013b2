"""Serializers give back what they took; key encodings sort as the keys do."""

import datetime as dt
import enum
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal

import attrs
import millpond as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond import errors
from millpond.types import VOID_NAMESPACE, VoidNamespace, key_codec_for, serializer_for


class Colour(enum.Enum):
    RED = "r"


@attrs.define
class Order:
    number: int
    lines: list[tuple[str, Decimal]]
    note: str | None = None


@dataclass(frozen=True)
class Point:
    x: float
    y: float


VALUES = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False)),
    (bool, st.booleans()),
    (str, st.text()),
    (bytes, st.binary()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (dt.datetime, st.datetimes(timezones=st.none() | st.just(dt.UTC))),
    (dt.date, st.dates()),
    (uuid.UUID, st.uuids()),
    (list[int], st.lists(st.integers())),
    (tuple[str, float], st.tuples(st.text(), st.floats(allow_nan=False))),
    (dict[str, list[bytes]], st.dictionaries(st.text(), st.lists(st.binary()))),
    (int | None, st.none() | st.integers()),
    (set[int], st.sets(st.integers(-5, 5))),
    (Colour, st.just(Colour.RED)),
    (
        Order,
        st.builds(
            Order,
            number=st.integers(),
            lines=st.lists(st.tuples(st.text(), st.decimals(allow_nan=False))),
            note=st.none() | st.text(),
        ),
    ),
    (Point, st.builds(Point, x=st.floats(allow_nan=False), y=st.floats(allow_nan=False))),
    (dict[int, dict[dt.date, uuid.UUID]], st.just({1: {dt.date(1, 1, 1): uuid.UUID(int=0)}})),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_values_come_back(kind, values):
    """What is serialized is deserialized to an equal value of the same type."""
    serializer = serializer_for(kind)

    @given(values)
    def check(value):
        checked = serializer.check(value)
        again = serializer.deserialize(serializer.serialize(checked))
        assert again == checked == value
        assert type(again) is type(value)

    check()


KEYS = [
    (int, st.integers(-(2**63), 2**63 - 1), lambda key: key),
    (bool, st.booleans(), lambda key: key),
    (float, st.floats(allow_nan=False), lambda key: key),
    (str, st.text(), lambda key: key.encode()),
    (bytes, st.binary(), lambda key: key),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3), lambda key: key),
    (dt.datetime, st.datetimes(timezones=st.just(dt.UTC)), lambda key: key),
    (dt.date, st.dates(), lambda key: key),
    (uuid.UUID, st.uuids(), lambda key: key),
    (
        tuple[str, int],
        st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1)),
        lambda key: (key[0].encode(), key[1]),
    ),
    (Point, st.builds(Point, x=st.floats(-9, 9), y=st.floats(-9, 9)), lambda k: (k.x, k.y)),
]


@pytest.mark.parametrize(("kind", "keys", "order"), KEYS, ids=[str(kind) for kind, _, _ in KEYS])
def test_keys_come_back_and_sort(kind, keys, order):
    """Encoded keys sort as the keys do, end by themselves, and are decoded to the same key."""
    codec = key_codec_for(kind)

    @given(keys, keys, st.binary())
    def check(one, other, rest):
        one, other = codec.check(one), codec.check(other)
        data = codec.encode(one)
        assert codec.decode(b"xy" + data + rest, 2) == (one, 2 + len(data))
        if order(one) != order(other):
            assert (data < codec.encode(other)) == (order(one) < order(other))

    check()


def test_decimals_of_another_scale_are_other_keys():
    """1.0 and 1.00 are two keys, and each comes back with its own scale."""
    codec = key_codec_for(Decimal)
    for text in ("1.0", "1.00", "0", "0.00", "-1E+5", "123.4500", "-0.001"):
        key = Decimal(text)
        assert str(codec.decode(codec.encode(key), 0)[0]) == text
    assert codec.encode(Decimal("1.0")) != codec.encode(Decimal("1.00"))


def test_special_floats_as_keys():
    """-0.0 is 0.0 and all NaNs are one key, as for Spark."""
    codec = key_codec_for(float)
    assert codec.encode(codec.check(-0.0)) == codec.encode(codec.check(0.0))
    nan = codec.check(float("nan"))
    assert nan is codec.check(-math.nan)
    assert codec.decode(codec.encode(nan), 0)[0] is nan


def test_naive_datetime_keys_mean_utc():
    """A naive key comes back aware, in UTC; values keep what they are."""
    naive = dt.datetime(2024, 1, 1)
    assert key_codec_for(dt.datetime).check(naive) == naive.replace(tzinfo=dt.UTC)
    assert serializer_for(dt.datetime).check(naive).tzinfo is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, "1"),
        (float, "1.0"),
        (str, b"x"),
        (str, "\ud800"),
        (bool, 1),
        (dt.date, dt.datetime(2024, 1, 1)),
        (list[str], "abc"),
        (list[int], [1, "2"]),
        (dict[str, int], {"a": 1.5}),
        (tuple[int, int], (1, 2, 3)),
        (Order, {"number": 1}),
        (Order, Order("1", [])),
    ],
)
def test_wrong_values_are_refused(kind, value):
    """A value of another type is refused, not coerced."""
    with pytest.raises(errors.StateTypeError):
        serializer_for(kind).check(value)


@pytest.mark.parametrize("kind", [object, list, dict[str, object], "int"])
def test_types_that_cannot_be_stored(kind):
    """A type without known parts is refused at the declaration, with what to do."""
    with pytest.raises(errors.ConfigError, match="cannot be stored"):
        serializer_for(kind)


@pytest.mark.parametrize("kind", [list[int], Order, dict[str, int]])
def test_types_that_cannot_be_keys(kind):
    """A mutable type cannot be a key."""
    with pytest.raises(errors.ConfigError, match="key"):
        key_codec_for(kind)


def test_none_in_a_composite_key():
    """None is refused in a composite key, unless the part admits it."""
    with pytest.raises(errors.NullValueError):
        key_codec_for(tuple[int, str]).check((1, None))
    codec = key_codec_for(tuple[int, str | None])
    assert codec.decode(codec.encode((1, None)), 0)[0] == (1, None)


def test_void_namespace_pickles_to_itself():
    """There is one VOID_NAMESPACE, also after pickling."""
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(VOID_NAMESPACE)) is VOID_NAMESPACE
    assert copy.deepcopy(VOID_NAMESPACE) is VOID_NAMESPACE
    assert key_codec_for(VoidNamespace).encode(VOID_NAMESPACE) == b""


def test_custom_serializer_as_key_and_value():
    """A TypeSerializer can be declared instead of a type, for values and for keys."""

    class Reversed(mp.TypeSerializer):
        immutable = True

        def check(self, value):
            return str(value)

        def serialize(self, value):
            return value[::-1].encode()

        def deserialize(self, data):
            return data.decode()[::-1]

        def snapshot(self):
            return mp.SerializerSnapshot("reversed")

    codec = key_codec_for(Reversed())
    assert codec.decode(codec.encode("a\0b"), 0)[0] == "a\0b"
    assert serializer_for(Reversed()).deserialize(b"cba") == "abc"


def test_snapshots_tell_types_apart():
    """The description of a type holds its parts."""
    one = serializer_for(dict[str, int]).snapshot()
    assert one == serializer_for(dict[str, int]).snapshot()
    assert one != serializer_for(dict[str, float]).snapshot()
    assert "int" in str(one)
