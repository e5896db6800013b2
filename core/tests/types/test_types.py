"""Serializers return equal values; encoded keys sort like the keys."""

import collections
import datetime as dt
import enum
import math
import uuid
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from decimal import Decimal
from typing import (
    Any,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
)
from zoneinfo import ZoneInfo

import attrs
import millpond as mp
import msgspec
import numpy as np
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
    """A value is deserialized to an equal value of the same type."""
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
    """Encoded keys sort like the keys, have a recognizable end, and are decoded to the same key."""
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
    """A naive datetime key comes back in UTC; a naive value remains naive."""
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
        (float, 2**53 + 1),
        (float, 10**400),
        (list[int], (1, 2)),
        (tuple[int, int], [1, 2]),
        (int | str, 1.0),
        (int | str, True),
        (int, np.array([1])),
        (float, np.array([1, 2])),
        (float, np.longdouble(1.5)),
        (mp.PickleSerializer(), lambda: 1),
        (dict[Decimal, int], {Decimal("NaN"): 1, Decimal("NaN") + 1: 2}),
        (dict[Decimal | bool, int], {Decimal("NaN"): 1, Decimal("NaN") + 1: 2}),
    ],
)
def test_wrong_values_are_refused(kind, value):
    """A value of another type is refused, not converted."""
    with pytest.raises(errors.StateTypeError):
        serializer_for(kind).check(value)


TWICE = dt.datetime(2024, 11, 3, 1, 30, tzinfo=ZoneInfo("America/New_York"))
"""A moment whose local time occurs twice, and that therefore equals itself in no other zone."""
MOMENT = TWICE.astimezone(dt.UTC)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (set[dt.datetime], {TWICE, MOMENT}),
        (frozenset[dt.datetime], frozenset({TWICE, MOMENT})),
        (set[tuple[dt.datetime, int]], {(TWICE, 1), (MOMENT, 1)}),
        (dict[dt.datetime, int], {TWICE: 1, MOMENT: 2}),
        (dict[tuple[dt.datetime, int], int], {(TWICE, 1): 1, (MOMENT, 1): 2}),
    ],
)
def test_what_would_come_back_as_one_is_refused(kind, value):
    """Two elements or keys that differ in Python but have the same bytes are refused."""
    assert len(value) == 2
    with pytest.raises(
        errors.StateTypeError, match="have the same stored form, so that one would be lost"
    ):
        serializer_for(kind).check(value)
    later = {MOMENT, MOMENT + dt.timedelta(hours=1)}
    assert serializer_for(set[dt.datetime]).check(later) == later


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Order, Order("1", []), r"\(number: expected int, got str '1'\)"),
        (list[Order], [Order("1", [])], r"\(number: expected int, got str '1'\)"),
        ("k string, s struct<a: int>", ("a", ("b",)), r"\(s\.a: expected int, got str 'b'\)"),
        ("k string, n int", ("a",), "expected a row of k, n, got tuple .* 1 values for 2 columns"),
        ("k string, n int", {"k": "a"}, r"got dict {'k': 'a'} \(missing: n\)\. "),
    ],
)
def test_a_wrong_part_is_told_with_its_field(kind, value, told):
    """The error about a part of a value names the field, or the columns of a row."""
    with pytest.raises(errors.StateTypeError, match=told):
        serializer_for(kind).check(value)


class Text(str):  # noqa: SLOT000 - a subclass like any other
    """A subclass of str."""


class Number(enum.IntEnum):
    ONE = 1


class Later(dt.datetime):
    """A subclass of datetime."""


class Longer(Order):
    """A subclass of `Order`."""


class Parts(NamedTuple):
    """A subclass of tuple."""

    a: int
    b: int


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, Text("a")),
        (str, enum.StrEnum("E", {"A": "a"}).A),
        (int, Number.ONE),
        (int, True),
        (float, Number.ONE),
        (float, type("F", (float,), {})(1.5)),
        (bytes, type("B", (bytes,), {})(b"a")),
        (Decimal, type("D", (Decimal,), {})("1")),
        (Decimal, Number.ONE),
        (dt.datetime, Later(2024, 1, 1)),
        (dt.date, type("Day", (dt.date,), {})(2024, 1, 1)),
        (uuid.UUID, type("U", (uuid.UUID,), {})(int=1)),
        (dict[str, int], collections.OrderedDict(a=1)),
        (dict[str, int], collections.defaultdict(int)),
        (list[int], type("L", (list,), {})([1])),
        (tuple[int, int], Parts(1, 2)),
        (set[int], type("S", (set,), {})([1])),
        (Order, Longer(1, [])),
        (list[str], [Text("a")]),
        (dict[str, int], {Text("a"): 1}),
    ],
)
def test_subclasses_are_refused(kind, value):
    """A value of a subclass is refused unchanged, because it would come back as the base class."""
    with pytest.raises(errors.StateTypeError):
        serializer_for(kind).check(value)


class Nowhere(dt.tzinfo):
    """A zone without an offset: Python treats its datetimes as naive."""

    def utcoffset(self, when):
        return None


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (float, 3, 3.0),
        (Decimal, 3, Decimal(3)),
        (bytes, bytearray(b"a"), b"a"),
        (float, np.float64(0.5), 0.5),
        (float, np.array(1.5), 1.5),
        (float, np.float32(0.1), float(np.float32(0.1))),
        (float, np.float16(0.1), float(np.float16(0.1))),
        (dt.datetime, dt.datetime(2024, 1, 1, tzinfo=Nowhere()), dt.datetime(2024, 1, 1)),
        (int, np.int64(7), 7),
        (str, np.str_("a"), "a"),
    ],
)
def test_what_is_converted(kind, value, kept):
    """These values are converted to the declared type, and remain equal."""
    made = serializer_for(kind).check(value)
    assert made == value
    assert (type(made), made) == (type(kept), kept)


def test_a_class_with_validators_is_not_taken_for_frozen():
    """A mutable attrs class is copied, also if attrs gives it its own __setattr__."""

    @attrs.define
    class Checked:
        count: int = attrs.field(validator=attrs.validators.instance_of(int))

    serializer = serializer_for(Checked)
    given = Checked(1)
    stored = serializer.check(given)
    assert not serializer.immutable
    assert serializer.copy(stored) is not stored


def doubling():
    """Return classes with their own constructor or assignment."""

    def construct(self, x):
        object.__setattr__(self, "x", x * 2)

    def inherited(self, x):
        super(type(self), self).__init__(x * 2)

    def assign(self, name, value):
        object.__setattr__(self, name, value * 2)

    fields = {"__annotations__": {"x": int}}
    careless = type("Careless", (), {"__setattr__": assign})
    base = dataclass(type("Base", (), dict(fields)))
    return [
        dataclass(type("OwnInit", (), {**fields, "__init__": construct})),
        dataclass(frozen=True)(type("FrozenInit", (), {**fields, "__init__": construct})),
        type("Undecorated", (base,), {"__init__": inherited}),
        dataclass(type("OddAssignment", (careless,), dict(fields))),
        attrs.define(type("AttrsInit", (), {**fields, "__init__": construct}), slots=False),
        attrs.define(type("AttrsAssignment", (careless,), dict(fields)), slots=False),
    ]


@pytest.mark.parametrize("kind", doubling(), ids=lambda kind: kind.__name__)
def test_a_constructor_of_ones_own_changes_no_stored_value(kind):
    """A field comes back as stored, whatever the class's constructor does."""
    serializer = serializer_for(kind)
    value = kind(3)
    assert value.x == serializer.check(value).x == 6
    assert serializer.deserialize(serializer.serialize(value)).x == 6
    if serializer.immutable:
        codec = key_codec_for(kind)
        assert codec.decode(codec.encode(value), 0)[0].x == 6


@attrs.frozen
class Doubled:
    """A class with a field that is named like another field's argument."""

    _n: int
    n: int = attrs.field(init=False)

    @n.default
    def _twice(self):
        return 2 * self._n


def test_a_field_that_is_called_as_the_argument_of_another():
    """Each field comes back with its own value, in state and as a key."""
    value = Doubled(3)
    assert attrs.astuple(value) == (3, 6)
    serializer, codec = serializer_for(Doubled), key_codec_for(Doubled)
    assert serializer.deserialize(serializer.serialize(serializer.check(value))) == value
    assert codec.decode(codec.encode(codec.check(value)), 0)[0] == value


@pytest.mark.parametrize("made", [serializer_for, key_codec_for])
def test_a_class_whose_base_alone_is_an_attrs_class(made):
    """A subclass without the decorator has no own fields, and is refused by name."""
    base = attrs.frozen(type("Base", (), {"__annotations__": {"x": int}}))
    with pytest.raises(errors.ConfigError, match=r"Mine.*decorate it"):
        made(type("Mine", (base,), {}))


def test_plain_enums_are_stored_by_their_values():
    """Enum members with plain values are stored by value."""
    serializer = serializer_for(Number)
    assert serializer.serialize(Number.ONE) == b"\x01"
    assert serializer.snapshot().payload == {"enum": {"ONE": 1}}


def test_an_enum_whose_values_are_no_longer_plain():
    """Members stored by value are found by name if another member later gets a composite value."""
    old = enum.Enum("E", {"A": 1, "B": 2})
    new = enum.Enum("E", {"A": 1, "B": 2, "C": (1, 2)})
    verdict = serializer_for(new).compatibility(serializer_for(old).snapshot())
    moved = verdict.migrate(serializer_for(old).serialize(old.B))
    assert serializer_for(new).deserialize(moved) is new.B


def test_integers_beyond_64_bits_are_widened_in_fields():
    """An int field that becomes Decimal or float keeps numbers beyond 64 bits."""
    for kind, made in ((Decimal, Decimal(1 << 70)), (float, float(1 << 70))):
        old = attrs.make_class("C", {"x": attrs.field(type=int)})
        new = attrs.make_class("C", {"x": attrs.field(type=kind)})
        verdict = serializer_for(new).compatibility(serializer_for(old).snapshot())
        moved = verdict.migrate(serializer_for(old).serialize(old(1 << 70)))
        assert serializer_for(new).deserialize(moved) == new(made)


def test_a_named_tuple_gains_a_part_with_a_default():
    """The default of a new part of a named tuple may have any type that can be stored."""

    class Old(NamedTuple):
        a: int

    class New(NamedTuple):
        a: int
        b: Decimal = Decimal("1.50")

    verdict = serializer_for(New).compatibility(serializer_for(Old).snapshot())
    moved = verdict.migrate(serializer_for(Old).serialize(Old(1)))
    assert serializer_for(New).deserialize(moved) == New(1, Decimal("1.50"))


def with_fields(**kinds):
    """Return a frozen class with fields of the given types."""
    fields = {name: attrs.field(type=kind) for name, kind in kinds.items()}
    return attrs.make_class("C", fields, frozen=True)


ENUM = enum.Enum("E", {"A": 1, "B": 2})


@pytest.mark.parametrize(
    ("old", "values", "new", "expected"),
    [
        (
            with_fields(a=Decimal, b=int),
            [(Decimal("1.0"), 1), (Decimal("1.00"), 2), (Decimal(2), 3)],
            with_fields(a=Decimal),
            [(Decimal(1),), (Decimal(2),)],
        ),
        (with_fields(e=ENUM), [(ENUM.A,), (ENUM.B,)], enum.Enum("E", {"A": 1, "B": 1}), [(1,)]),
    ],
)
@pytest.mark.parametrize("kind", [set, frozenset])
def test_elements_that_become_alike_are_one(kind, old, values, new, expected):
    """If a migration makes elements of a set equal, they become one element."""
    declared = with_fields(e=new) if issubclass(new, enum.Enum) else new
    before, after = serializer_for(kind[old]), serializer_for(kind[declared])
    stored = before.serialize(kind(old(*value) for value in values))
    moved = after.compatibility(before.snapshot()).migrate(stored)
    made = (declared(*map(new, each) if declared is not new else each) for each in expected)
    assert after.deserialize(moved) == kind(made)


@attrs.define
class Untyped:
    x = attrs.field()


@dataclass
class Needy:
    x: int
    extra: InitVar[int]


@attrs.define
class Text2(str):  # noqa: SLOT000 - refused as it is
    x: int = 0


T = TypeVar("T")
BARE = collections.namedtuple("Bare", "a b")  # noqa: PYI024 - without types on purpose
REFUSED = [
    object, Any, list, dict, tuple, set, complex, range, Untyped, Needy, Text2, T,
    Callable[[int], int], type, bytearray,
    collections.OrderedDict[str, int], BARE, enum.Enum("None_", []),
    set[list[int]], dict[list[int], int], dict[Order, int], int | dt.date, str | Decimal,
    list[int] | tuple[int, ...], dict[str, int] | Order, int | dt.timedelta,
    int | dt.time, Text,
]  # fmt: skip
PLACES = [
    lambda kind: kind,
    lambda kind: list[kind],
    lambda kind: dict[str, tuple[int, kind]],
    lambda kind: attrs.make_class("Holder", {"part": attrs.field(type=kind)}),
    lambda kind: tuple[attrs.make_class("Holder", {"part": attrs.field(type=kind)}), ...],
    lambda kind: NamedTuple("Holding", [("part", list[kind])]),
]


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[str(kind) for kind in REFUSED])
def test_types_are_refused_with_their_name_and_place(number):
    """A type that cannot be stored is refused at the declaration with its name and place."""
    kind = REFUSED[number]
    part = get_args(kind)[0] if get_origin(kind) in (set, dict) else kind
    name = getattr(part, "__name__", str(part)) if get_origin(part) is None else str(part)
    for wrap in PLACES:
        declared = wrap(kind)
        with pytest.raises(errors.ConfigError, match="cannot be stored") as caught:
            serializer_for(declared)
        assert name in str(caught.value)
        assert wrap is PLACES[0] or ", at " in str(caught.value)


@pytest.mark.parametrize("kind", [object, list, dict[str, object]])
def test_types_that_cannot_be_stored(kind):
    """A type without known parts is refused at the declaration with a cure."""
    with pytest.raises(errors.ConfigError, match="cannot be stored"):
        serializer_for(kind)


@pytest.mark.parametrize("kind", [list[int], Order, dict[str, int], enum.Flag("Bits", ["A"])])
def test_types_that_cannot_be_keys(kind):
    """A mutable type cannot be a key."""
    with pytest.raises(errors.ConfigError, match="key"):
        key_codec_for(kind)


def test_none_in_a_composite_key():
    """None is refused in a composite key, unless the part allows it."""
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
    """The stored description of a type contains its parts."""
    one = serializer_for(dict[str, int]).snapshot()
    assert one == serializer_for(dict[str, int]).snapshot()
    assert one != serializer_for(dict[str, float]).snapshot()
    assert "int" in str(one)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dt.time, dt.time(1, tzinfo=dt.UTC)),
        (dt.time, dt.timedelta(1)),
        (dt.timedelta, 1),
        (dt.timedelta, np.timedelta64(1, "M")),
    ],
)
def test_times_and_durations_are_plain(kind, value):
    """A time has no zone; numbers, and durations of other libraries, are refused as durations."""
    with pytest.raises(errors.StateTypeError):
        serializer_for(kind).check(value)
    with pytest.raises(errors.StateTypeError):
        key_codec_for(kind).check(value)


def test_a_duration_that_is_a_key_has_64_bits():
    """A duration value may have any size; a key has 64 bits of microseconds, like Spark's hash."""
    assert serializer_for(dt.timedelta).check(dt.timedelta.max) == dt.timedelta.max
    with pytest.raises(errors.StateTypeError, match="64 bits"):
        key_codec_for(dt.timedelta).check(dt.timedelta.max)


@pytest.mark.parametrize("key", [2**63, -(2**70), True])
def test_a_refused_key_tells_of_no_other_error(key):
    """The traceback of a refused key contains no internal error."""
    with pytest.raises(errors.StateTypeError) as told:
        key_codec_for(int).check_with_group(key, 128)
    assert told.value.__context__ is None


def test_enum_keys_are_names():
    """Keys of enums are names: values may change and members may be added; a removed member is reported."""
    first = enum.Enum("Colour", {"RED": 1, "BLUE": 2})
    before = key_codec_for(first)
    now = enum.StrEnum("Colour", {"BLUE": "b", "RED": "r", "GREEN": "g"})
    codec = key_codec_for(now)
    assert codec.decode(before.encode(first.RED), 0) == (now.RED, 5)
    assert codec.snapshot() == before.snapshot()
    assert codec.hash(now.RED) == key_codec_for(str).hash("RED")
    with pytest.raises(errors.StateTypeError, match="no such name"):
        codec.decode(b"BLACK\0\0", 0)
    with pytest.raises(errors.StateTypeError):
        codec.check("r")


class Point(NamedTuple):
    """A point; `TurnedPoint` has its fields in another order."""

    x: int
    y: int


class TurnedPoint(NamedTuple):
    """The later version of `Point`."""

    y: int
    x: int


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        (Point, TurnedPoint, Point(1, 2), TurnedPoint(x=1, y=2)),
        (list[Point], list[TurnedPoint], [Point(1, 2)], [TurnedPoint(x=1, y=2)]),
        (Point | None, TurnedPoint | None, Point(1, 2), TurnedPoint(x=1, y=2)),
    ],
)
def test_reordered_fields_of_a_named_tuple_keep_their_values(old, new, value, expected):
    """A named tuple's values are stored in field order, and found by name."""
    before, after = serializer_for(old), serializer_for(new)
    verdict = after.compatibility(before.snapshot())
    assert after.deserialize(verdict.migrate(before.serialize(value))) == expected


def test_a_stored_value_of_no_part_of_a_union_is_refused():
    """A MessagePack timestamp, which no type is stored as, is refused like any other value."""
    data = msgspec.msgpack.encode(dt.datetime.now(dt.UTC))
    for union in (int | str, int | str | list[int]):
        with pytest.raises(errors.StateTypeError, match="datetime"):
            serializer_for(union).deserialize(data)
