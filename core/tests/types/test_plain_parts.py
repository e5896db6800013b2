"""Tuples and lists of plain scalars give the same values, bytes and errors as part by part."""

from typing import NamedTuple

import millpond as mp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond.errors import StateTypeError
from millpond.types import serializer_for
from millpond.types.nodes import SCALAR_NODES

PLAIN = (int, float, bool, bytes, str)
ENCODE = msgspec.msgpack.Encoder().encode


class Whole(int):
    """A subclass of int."""


class Visit(NamedTuple):
    """A named tuple."""

    shop: int
    amount: float
    customer: str
    again: bool


class Tagged(Visit):
    """A named tuple whose objects accept attributes."""


SCALARS = (
    st.integers(-(2**70), 2**70)
    | st.floats()
    | st.booleans()
    | st.binary(max_size=3)
    | st.text(max_size=3)
    | st.sampled_from(["\ud800", "ü", Whole(3), None, bytearray(b"a"), (1,), [1]])
)
FITTING = {
    int: st.integers(-(2**70), 2**70),
    float: st.floats(),
    bool: st.booleans(),
    bytes: st.binary(max_size=3),
    str: st.text(max_size=3),
}
ENDS = st.sampled_from([2**63, 2**63 - 1, -(2**63), -(2**63) - 1])
FITTING[int] |= ENDS
VISITS = st.tuples(*map(FITTING.get, (int, float, str, bool)))


def by_parts(kinds, value):
    """Return the result of checking part by part, and its bytes; None if it is refused."""
    if len(value) != len(kinds):
        return None
    try:
        packed = [SCALAR_NODES[k].pack(v) for k, v in zip(kinds, value, strict=True)]
        checked = [
            SCALAR_NODES[k].unpack(SCALAR_NODES[k].pack(v))
            for k, v in zip(kinds, value, strict=True)
        ]
    except StateTypeError:
        return None
    return repr(tuple(checked)), ENCODE(packed)


@given(st.data())
def test_a_tuple_is_checked_and_stored_as_its_parts_are(data):
    """A tuple is accepted, stored and read like its parts."""
    kinds = data.draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=4))
    parts = [data.draw(FITTING[kind] | SCALARS) for kind in kinds]
    value = (*parts, *data.draw(st.sampled_from([(), (), (), (1,)])))
    serializer = serializer_for(tuple[tuple(kinds)])
    expected = by_parts(kinds, value)
    if expected is None:
        with pytest.raises(StateTypeError):
            serializer.check(value)
        return
    data_of = serializer.serialize(serializer.check(value))
    assert (repr(serializer.check(value)), data_of) == expected
    assert repr(serializer.deserialize(data_of)) == expected[0]


@pytest.mark.parametrize("kind", [Visit, Tagged])
@given(VISITS)
def test_a_named_tuple_comes_back_as_one(kind, parts):
    """A named tuple comes back as its own class, without additional attributes."""
    serializer = serializer_for(kind)
    value = kind(*parts)
    if kind is Tagged:
        value.tag = "lost"
    kept = serializer.check(value)
    assert type(kept) is type(serializer.deserialize(serializer.serialize(kept))) is kind
    assert repr(tuple(kept)) == repr(parts)
    assert not getattr(kept, "tag", "")
    for other in (tuple(value), Visit(*parts) if kind is Tagged else Tagged(*parts)):
        with pytest.raises(StateTypeError):
            serializer.check(other)


class Upper(Visit):
    """A named tuple with its own constructor."""

    __slots__ = ()

    @classmethod
    def _make(cls, parts):
        shop, amount, customer, again = parts
        return tuple.__new__(cls, (shop, amount, customer.upper(), again))


class Short(Visit):
    """A named tuple with a wrong length."""

    __slots__ = ()

    def __len__(self):
        return 3


class Hidden(Visit):
    """A named tuple that shows other parts than it has."""

    __slots__ = ()

    def __getitem__(self, at):
        return "hidden"


def test_classes_that_are_no_plain_tuples_are_taken_part_by_part():
    """Such classes are checked part by part, and a wrong number of parts is refused."""
    parts = (1, 2.0, "c", True)
    assert tuple(serializer_for(Upper).check(tuple.__new__(Upper, parts))) == (1, 2.0, "C", True)
    with pytest.raises(StateTypeError, match="3 values for 4 columns"):
        serializer_for(Short).check(Short(*parts))
    hidden = serializer_for(Hidden)
    stored = hidden.serialize(hidden.check(Hidden(*parts)))
    assert stored == ENCODE(list(parts))


@pytest.mark.parametrize("kind", PLAIN)
@given(st.data())
def test_a_list_is_checked_and_stored_as_its_elements_are(kind, data):
    """The checked list is a copy, which does not see changes of the value."""
    value = data.draw(st.lists(FITTING[kind], max_size=9))
    value += data.draw(st.lists(SCALARS, max_size=1))
    serializer = serializer_for(list[kind])
    expected = by_parts([kind] * len(value), value)
    if expected is None:
        with pytest.raises(StateTypeError):
            serializer.check(value)
        return
    checked = serializer.check(value)
    assert checked is not value
    data_of = serializer.serialize(checked)
    assert (repr(tuple(checked)), data_of) == expected
    assert repr(tuple(serializer.deserialize(data_of))) == expected[0]


@pytest.mark.parametrize("value", [(1, "\ud800"), (1, "aü\udfff")])
def test_halves_of_surrogate_pairs_are_refused(value):
    """Halves of surrogate pairs are refused, although the type of the string is exact."""
    with pytest.raises(StateTypeError):
        serializer_for(tuple[int, str]).check(value)
    with pytest.raises(StateTypeError):
        serializer_for(list[str]).check([*"abcdefg", value[1]])


@pytest.mark.parametrize(
    ("declared", "of_visit", "visit_of"),
    [
        (Tagged, lambda visit: visit, lambda value: value),
        (tuple[Tagged, int], lambda visit: (visit, 1), lambda value: value[0]),
        (dict[str, Tagged], lambda visit: {"k": visit}, lambda value: value["k"]),
    ],
    ids=["itself", "in a tuple", "in a dict"],
)
def test_attributes_that_are_set_on_what_was_read_are_not_kept(declared, of_visit, visit_of):
    """Attributes set on a read value are not kept: each reader gets an object of its own."""
    value = of_visit(Tagged(1, 2.0, "c", True))
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("visits", declared))
        backend.set_current_key("k")
        state.update(value)
        for _ in range(2):
            read = state.value()
            assert read == value
            assert not hasattr(visit_of(read), "tag")
            visit_of(read).tag = "set"


def test_attributes_that_are_set_on_keys_that_were_read_are_not_kept():
    """The same class as key, namespace or map key gives each reader an object of its own."""
    visit = Tagged(1, 2.0, "c", True)
    with mp.open_keyed_backend("heap", key_type=Tagged) as backend:
        backend.set_current_key(visit)
        total = mp.ValueStateDescriptor("total", int)
        backend.get_partitioned_state(total, visit, Tagged).update(1)
        shops = backend.get_partitioned_state(mp.MapStateDescriptor("shops", Tagged, int))
        shops.put(visit, 1)
        for _ in range(2):
            ((key, namespace),) = backend.keys_and_namespaces("total")
            (kept,) = backend.keys("shops")
            (map_key,) = shops.keys()
            for read in (key, namespace, kept, map_key):
                assert read == visit
                assert type(read) is Tagged
                assert not hasattr(read, "tag")
                read.tag = "set"
