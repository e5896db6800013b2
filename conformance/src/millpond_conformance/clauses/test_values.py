"""Clauses: value states, and isolation of values."""

import enum
import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.comparing import assert_same
from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.typed_states import TypedStates


class Level(enum.IntEnum):
    """An enum whose members are ints."""

    LOW = 1


class Word(enum.StrEnum):
    """An enum whose members are strings."""

    A = "a"


SPENT = mp.ValueStateDescriptor("spent", float)


@pytest.mark.clause("V1")
def test_value_is_kept_per_key(open_backend: BackendOpener):
    """A key does not see the values of another key."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    for key, value in (("alice", 1.5), ("bob", 2.5)):
        backend.set_current_key(key)
        assert state.value() is None
        state.update(value)
    backend.set_current_key("alice")
    assert state.value() == 1.5


@pytest.mark.clause("V2")
def test_values_survive_a_flush(open_backend: BackendOpener):
    """Reads of written, overwritten and removed entries are the same before and after a flush."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    for step in (1.0, 2.0, None):
        backend.set_current_key("alice")
        state.update(step)
        backend.flush()
        assert state.value() == step


@pytest.mark.clause("V3")
def test_update_none_clears(open_backend: BackendOpener):
    """`update(None)` removes the entry completely."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    backend.set_current_key("alice")
    for flushed in (False, True):
        state.update(1.0)
        if flushed:
            backend.flush()
        state.update(None)
        assert state.value() is None
        assert backend.num_state_entries() == 0


@pytest.mark.clause("V4")
def test_default_is_copied_for_each_read(open_backend: BackendOpener):
    """If the caller modifies a default value that it read, later reads do not change."""
    backend = open_backend()
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("tags", list[str], default=["a"]))
    backend.set_current_key("alice")
    tags = state.value()
    assert tags is not None
    tags.append("b")
    assert state.value() == ["a"]


@pytest.mark.clause("V5")
def test_isolation_of_values(open_backend: BackendOpener):
    """If the caller modifies a value that it wrote or read, the state does not change."""
    backend = open_backend()
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("nested", dict[str, list[int]]))
    backend.set_current_key("alice")
    handed = {"x": [1]}
    state.update(handed)
    handed["x"].append(2)
    returned = state.value()
    assert returned is not None
    returned["x"].append(3)
    assert state.value() == {"x": [1]}
    backend.flush()
    assert state.value() == {"x": [1]}


@pytest.mark.clause("V6")
def test_wrong_type_is_refused_before_anything_changes(open_backend: BackendOpener):
    """A value of another type raises StateTypeError, which names the state, and changes nothing.

    A value of a subclass is refused too, because a read would return the base class.
    """
    backend = open_backend()
    backend.set_current_key("alice")
    wrong: tuple[tuple[Any, Any, Any], ...] = (
        (float, 1.0, "2.0"),
        (int, 1, True),
        (int, 1, Level.LOW),
        (str, "a", Word.A),
        (dict[str, int], {"a": 1}, defaultdict(int, a=2)),
        (list[int], [1], [1, "2"]),
    )
    for number, (declared, right, refused) in enumerate(wrong):
        state = backend.get_partitioned_state(mp.ValueStateDescriptor(f"spent-{number}", declared))
        state.update(right)
        with pytest.raises(errors.StateTypeError, match=f"spent-{number}"):
            state.update(refused)
        assert_same(state.value(), right)


@pytest.mark.clause("V12")
def test_values_of_8_mib(open_backend: BackendOpener, storage):
    """A value of 8 MiB is stored, snapshotted and restored."""
    backend = open_backend()
    descriptor = mp.ValueStateDescriptor("blob", bytes)
    state = backend.get_partitioned_state(descriptor)
    backend.set_current_key("alice")
    blob = bytes(range(256)) * (8 << 12)
    state.update(blob)
    backend.flush()
    assert state.value() == blob
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    restored.set_current_key("alice")
    assert restored.get_partitioned_state(descriptor).value() == blob


@pytest.mark.clause("V13")
def test_integers_are_exact(open_backend: BackendOpener):
    """As values, ints of any size are exact; as keys, ints beyond 64 bits are refused."""
    backend = open_backend(key_type=int)
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("number", int))
    for value in (0, -1, 2**63, -(2**200), 10**40):
        backend.set_current_key(value % 1000)
        state.update(value)
        backend.flush()
        assert_same(state.value(), value)
    for key in (2**63, -(2**63) - 1):
        with pytest.raises(errors.StateTypeError):
            backend.set_current_key(key)


def uses_of(backend, storage):
    """Return functions that use an open backend and its states in every way."""
    backend.set_current_key("alice")
    state = backend.get_partitioned_state(SPENT)
    timers = backend.timer_queue("event")
    entries = backend.get_partitioned_state(mp.MapStateDescriptor("entries", str, int))
    items = backend.get_partitioned_state(mp.ListStateDescriptor("items", int))
    largest = backend.get_partitioned_state(mp.ReducingStateDescriptor("largest", max, int))
    ttl = mp.StateTtlConfig(timedelta(days=1), update_type=mp.UpdateType.ON_READ_AND_WRITE)
    fading = mp.MapStateDescriptor("fading", str, int).enable_time_to_live(ttl)
    renewed = backend.get_partitioned_state(fading)
    renewed.put_all({"a": 1, "b": 2, "c": 3})
    opened = iter(renewed.items())
    next(opened)
    return (
        state.value,
        state.clear,
        lambda: state.update(1.0),
        lambda: entries.get("a"),
        lambda: entries.put("a", 1),
        lambda: entries.remove("a"),
        lambda: list(entries.items()),
        lambda: next(opened),
        entries.is_empty,
        entries.clear,
        items.get,
        lambda: items.add(1),
        lambda: items.update([1]),
        items.clear,
        largest.get,
        lambda: largest.add(1),
        lambda: backend.set_current_key("alice"),
        lambda: backend.get_partitioned_state(SPENT),
        lambda: backend.timer_queue("event"),
        lambda: timers.register(1, mp.VOID_NAMESPACE),
        lambda: list(timers.due(1)),
        lambda: list(backend.keys("spent")),
        lambda: list(backend.keys_and_namespaces("spent")),
        lambda: backend.apply_to_all_keys(SPENT, print),
        lambda: backend.flush("v1"),
        lambda: backend.snapshot(1, storage),
        lambda: backend.savepoint(1, storage),
        backend.num_state_entries,
    )


@pytest.mark.clause("V14")
def test_closed_backend(open_backend: BackendOpener, storage):
    """After close every use raises BackendClosedError, but close may be called again.

    This includes iterations that began before close and renew TTL timestamps.
    """
    backend = open_backend()
    uses = uses_of(backend, storage)
    backend.close()
    backend.close()
    for use in uses:
        with pytest.raises(errors.BackendClosedError):
            use()


ODD: dict[Any, list[Any]] = {
    float: [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308],
    str: ["", "\0", "ä\u0301", "\U0001f600", "line\nline"],
    bytes: [b"", b"\0", b"\xff" * 3],
    int: [0, -1, 1 << 100, -(1 << 100)],
    bool: [False, True],
    list[int]: [[], [0], [-1, 1]],
    dict[str, list[int]]: [{}, {"": []}, {"a": [1]}],
    datetime: [datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
    Decimal: [Decimal("0.00"), Decimal("-1E+3"), Decimal("0.1")],
}


@pytest.mark.clause("V16")
@pytest.mark.parametrize("value_type", list(ODD), ids=str)
def test_odd_values(open_backend: BackendOpener, storage, value_type):
    """Empty, zero, infinite and extreme values are stored and come back unchanged."""
    backend = open_backend()
    descriptor = mp.ValueStateDescriptor("odd", value_type)
    state = backend.get_partitioned_state(descriptor)
    for number, value in enumerate(ODD[value_type]):
        backend.set_current_key(f"k{number}")
        state.update(value)
    backend.flush()
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    for each in (backend, restored):
        held = each.get_partitioned_state(descriptor)
        assert len(list(each.keys("odd"))) == len(ODD[value_type])
        for number, value in enumerate(ODD[value_type]):
            each.set_current_key(f"k{number}")
            assert_same(held.value(), value)


EQUAL: dict[Any, tuple[Any, Any]] = {
    float: (0.0, -0.0),
    Decimal: (Decimal("1.0"), Decimal("1.00")),
    list[float]: ([0.0, 1.0], [-0.0, 1.0]),
    tuple[str, Decimal]: (("a", Decimal("-0")), ("a", Decimal(0))),
}
"""Values that are equal in Python although they differ, in groups."""


@pytest.mark.clause("V25")
@pytest.mark.parametrize("value_type", list(EQUAL), ids=str)
def test_equal_values_replace_each_other(open_backend: BackendOpener, storage, value_type):
    """A new value replaces the old one even if `==` finds them equal, as 0.0 and -0.0.

    This applies to values, maps and deltas, with or without a flush or a snapshot in between.
    """
    backend = open_backend(config=mp.Config({"state.snapshot.strategy": "changelog"}))
    value = mp.ValueStateDescriptor("value", value_type)
    entries = mp.MapStateDescriptor("entries", str, value_type)
    one, other = EQUAL[value_type]
    steps = {"at once": None, "flushed": backend.flush, "read": lambda: held(backend, "read")}

    def write(key: str, given: Any) -> None:
        backend.set_current_key(key)
        backend.get_partitioned_state(value).update(given)
        backend.get_partitioned_state(entries).put("e", given)

    def held(each: Any, key: str) -> list[Any]:
        each.set_current_key(key)
        in_map = each.get_partitioned_state(entries).get("e")
        return [each.get_partitioned_state(value).value(), in_map]

    for first, second in ((one, other), (other, one)):
        for key, between in steps.items():
            write(key, first)
            if between is not None:
                between()
            write(key, second)
            assert_same(held(backend, key), [second] * 2)
        backend.snapshot(1, storage).result()
        backend.notify_checkpoint_complete(1)
        write("at once", first)
        restored = open_backend(restore=[backend.snapshot(2, storage).result().handle])
        assert_same(held(restored, "at once"), [first] * 2)
        assert_same(held(restored, "flushed"), [second] * 2)


class Rights(enum.Flag):
    """A flag, whose values are combinations of bits."""

    READ = 1
    RUN = 2


class Shape(enum.Enum):
    """An enum whose members are tuples."""

    DOT = (0, b"\0")


TYPED = {
    Level: Level.LOW,
    Word: Word.A,
    Rights: Rights.READ | Rights.RUN,
    Shape: Shape.DOT,
    dict[tuple[int, str], int]: {(1, "a"): 1},
    dict[int | None, Word]: {None: Word.A, 1 << 70: Word.A},
    dict[datetime, Decimal]: {datetime(1, 1, 1): Decimal("NaN")},  # noqa: DTZ001 - naive on purpose
    frozenset[Shape]: frozenset({Shape.DOT}),
    int: 7**9000,
}


@pytest.mark.clause("V17")
@pytest.mark.parametrize("value_type", list(TYPED), ids=str)
def test_types_come_back(open_backend: BackendOpener, storage, value_type):
    """Enums, flags, and dictionaries with keys of any type keep their type, also in savepoints."""
    descriptor = mp.ValueStateDescriptor("typed", value_type)
    backend = open_backend()
    backend.set_current_key("k")
    backend.get_partitioned_state(descriptor).update(TYPED[value_type])
    backend.flush()
    handles = [take(1, storage).result().handle for take in (backend.snapshot, backend.savepoint)]
    for each in (backend, *(open_backend(restore=[handle]) for handle in handles)):
        each.set_current_key("k")
        assert_same(each.get_partitioned_state(descriptor).value(), TYPED[value_type])


@pytest.mark.clause("V31")
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_every_type_in_every_kind(open_backend: BackendOpener, storage, depth):
    """Each kind of state returns values of every type and nesting exactly.

    This holds before and after a flush, and after a restore with each snapshot strategy. Exact are
    types, scales of decimals, signs of zero, the order of entries, and nulls at any depth.
    """
    states = TypedStates(depth)
    for strategy in sorted({*open_backend().strategy_names()} - {"savepoint"}):
        backend = open_backend(config=mp.Config({"state.snapshot.strategy": strategy}))
        states.fill(backend, 0, 2)
        backend.snapshot(1, storage).result()
        backend.notify_checkpoint_complete(1)
        states.fill(backend, 1, 2)
        states.check(backend)
        states.check(open_backend(restore=[backend.snapshot(2, storage).result().handle]))
