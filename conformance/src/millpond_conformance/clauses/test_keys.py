"""Clauses: accepted keys, equality of keys, and listings."""

import enum
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.fixtures import BackendOpener

TOTAL = mp.ValueStateDescriptor("total", int)
SPENT = mp.ValueStateDescriptor("spent", float)


@pytest.mark.clause("V7")
def test_keys_are_checked(open_backend: BackendOpener):
    """A null key, a key of a wrong type and an access without a key raise three different errors.

    An access without a key raises its error each time, and writes nothing.
    """
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    _refuses(state)
    backend.set_current_key("alice")
    state.update(1.0)
    backend.current.forget()
    _refuses(state)
    assert list(backend.keys("spent")) == ["alice"]
    with pytest.raises(errors.NullValueError):
        backend.set_current_key(None)
    with pytest.raises(errors.StateTypeError):
        backend.set_current_key(7)


def _refuses(state: Any) -> None:
    """Check that each access to `state` raises NoCurrentKeyError, also the second time."""
    for use in 2 * (state.value, partial(state.update, 2.0), state.clear):
        with pytest.raises(errors.NoCurrentKeyError):
            use()


@pytest.mark.clause("V8")
def test_foreign_key_group_is_refused(open_backend: BackendOpener):
    """A backend refuses a current key whose key group belongs to another subtask."""
    group = mp.assign_to_key_group("alice", 128)
    other = mp.KeyGroupRange(group + 1, 127) if group < 127 else mp.KeyGroupRange(0, 126)
    backend = open_backend(key_group_range=other)
    with pytest.raises(errors.KeyGroupRangeError, match="alice"):
        backend.set_current_key("alice")


@pytest.mark.clause("V9")
def test_keys_are_enumerated_once(open_backend: BackendOpener):
    """keys() returns each key with data once; keys_and_namespaces() returns each pair once.

    This includes keys whose value is the default value of the state.
    """
    backend = open_backend()
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("spent", float, default=1.0))
    for number in range(300):
        backend.set_current_key(f"k{number}")
        state.update(float(number))
    backend.set_current_key("k7")
    state.clear()
    expected = {f"k{number}" for number in range(300)} - {"k7"}
    for _ in range(2):
        pairs = [(key, mp.VOID_NAMESPACE) for key in sorted(expected)]
        assert sorted(backend.keys("spent")) == sorted(expected)
        assert sorted(backend.keys_and_namespaces("spent")) == pairs
        # List them again after one key was removed, one added and one overwritten.
        for key, value in (("k8", None), ("new", 1.0), ("k9", -1.0)):
            backend.set_current_key(key)
            state.update(value)
        expected = expected - {"k8"} | {"new"}
    assert list(backend.keys("unknown")) == []


@pytest.mark.clause("V10")
def test_apply_to_all_keys_may_change_the_state(open_backend: BackendOpener):
    """`apply_to_all_keys` visits each key once, and leaves the current key (or none) unchanged.

    The function that it calls may clear and update the state, or raise an error.
    """
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    for number in range(50):
        backend.set_current_key(f"k{number}")
        state.update(float(number))

    visited = []

    def halve(key, found):
        visited.append(key)
        value = found.value()
        found.update(value / 2 if value < 25 else None)

    backend.apply_to_all_keys(SPENT, halve)
    assert sorted(visited) == sorted(f"k{number}" for number in range(50))
    assert backend.current_key == "k49"
    assert len(list(backend.keys("spent"))) == 25
    backend.set_current_key("k10")
    assert state.value() == 5.0
    for number in range(25):
        backend.set_current_key(f"k{number}")
        backend.apply_to_all_keys(SPENT, lambda _, found: found.update(found.value()))
        assert state.value() == number / 2
        with pytest.raises(ZeroDivisionError):
            backend.apply_to_all_keys(SPENT, lambda _, found: found.update(1 / 0))
        assert state.value() == number / 2
        backend.set_current_key(f"k{number}")
        assert state.value() == number / 2
    backend.current.forget()
    backend.apply_to_all_keys(SPENT, lambda key, _: visited.append(key))
    _refuses(state)
    backend.set_current_key(visited[-1])
    assert state.value() == int(visited[-1][1:]) / 2


@pytest.mark.clause("V11")
@pytest.mark.parametrize("size", [0, 1, 510, 511, 512, 4096])
def test_keys_of_any_length(open_backend: BackendOpener, size: int):
    """Keys up to 4 KiB work, even two that differ only in their last byte."""
    backend = open_backend(key_type=bytes)
    state = backend.get_partitioned_state(SPENT)
    keys = [b"\0" * size + end for end in (b"a", b"b", b"\xff")]
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        state.update(float(number))
    backend.flush()
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        assert state.value() == float(number)
    assert sorted(backend.keys("spent")) == sorted(keys)


class Side(enum.Enum):
    """A key of two possible classes."""

    LEFT = 1
    RIGHT = -1


class Spot(NamedTuple):
    """A key with an optional part."""

    name: str
    number: int | None = None


@attrs.frozen
class Pair:
    """A key that contains another key."""

    number: int
    spot: Spot


KEYS: dict[Any, list[Any]] = {
    str: ["", "a", "a\0", "\0", "ä", "\U0001f600", "a" * 300],
    int: [0, 1, -1, 255, 256, -(1 << 63), (1 << 63) - 1],
    bytes: [b"", b"\0", b"\0\0", b"\xff", b"\xff\0"],
    bool: [False, True],
    tuple[str, int]: [("", 0), ("a", -1), ("a", 1), ("a\0", 0), ("b", -(1 << 63))],
    datetime: [datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)],
    float: [0.0, -1.5, 1.5, math.inf, -math.inf, 5e-324],
    date: [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    time: [time(0), time(23, 59, 59, 999_999)],
    timedelta: [timedelta(0), timedelta(microseconds=-1), timedelta(days=100_000)],
    UUID: [UUID(int=0), UUID(int=1 << 64), UUID(int=(1 << 128) - 1)],
    Decimal: [Decimal(0), Decimal("-1.5"), Decimal("1E+30"), Decimal("0.1")],
    Side: [Side.LEFT, Side.RIGHT],
    Spot: [Spot("", None), Spot("", 0), Spot("a", None), Spot("a", -1)],
    Pair: [Pair(0, Spot("", 0)), Pair(0, Spot("a", None)), Pair(-1, Spot("", 0))],
}


@pytest.mark.clause("V15")
@pytest.mark.parametrize("key_type", list(KEYS), ids=str)
def test_keys_of_each_type(open_backend: BackendOpener, storage, key_type):
    """The backend distinguishes keys of each type and lists them, before and after a restore.

    This applies to map keys of each type too.
    """
    backend = open_backend(key_type=key_type)
    keys, entries = KEYS[key_type], mp.MapStateDescriptor("entries", key_type, int)
    state = backend.get_partitioned_state(TOTAL)
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        state.update(number)
        backend.get_partitioned_state(entries).put_all({key: n for n, key in enumerate(keys)})
    restored = open_backend(
        key_type=key_type, restore=[backend.snapshot(1, storage).result().handle]
    )
    for each in (backend, restored):
        held = each.get_partitioned_state(TOTAL)
        mapped = each.get_partitioned_state(entries)
        assert sorted(map(repr, each.keys("total"))) == sorted(map(repr, keys))
        for number, key in enumerate(keys):
            each.set_current_key(key)
            assert held.value() == number
            assert [mapped.get(other) for other in keys] == [*range(len(keys))]
            assert sorted(map(repr, mapped.keys())) == sorted(map(repr, keys))


@attrs.frozen
class Tagged:
    """A key that ignores its label when it is compared."""

    number: float
    label: str = attrs.field(eq=False)


@pytest.mark.clause("V18")
def test_keys_are_told_apart_by_their_parts(open_backend: BackendOpener, storage):
    """Map keys and namespaces with different fields are distinct, even if `==` finds them equal."""
    keys = [Tagged(1.0, "a"), Tagged(1.0, "b"), Tagged(math.nan, "a")]
    mapped = mp.MapStateDescriptor("mapped", Tagged, int)
    spaced = mp.ValueStateDescriptor("spaced", int)
    backend = open_backend()
    backend.set_current_key("k")
    for number, key in enumerate(keys):
        backend.get_partitioned_state(mapped).put(key, number)
        backend.get_partitioned_state(spaced, key, Tagged).update(number)
    backend.flush()
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    for each in (backend, restored):
        each.set_current_key("k")
        state = each.get_partitioned_state(mapped)
        assert [state.get(key) for key in keys] == [0, 1, 2]
        assert sorted(key.label for key in state.keys()) == ["a", "a", "b"]  # noqa: SIM118
        spaces = [each.get_partitioned_state(spaced, key, Tagged).value() for key in keys]
        assert spaces == [0, 1, 2]
