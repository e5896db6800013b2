"""Value states, keys, and the isolation rule."""

import enum
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.fixtures import BackendOpener

TOTAL = mp.ValueStateDescriptor("total", int)
SPENT = mp.ValueStateDescriptor("spent", float)


@pytest.mark.clause("V1")
def test_value_is_kept_per_key(open_backend: BackendOpener):
    """What one key stores, no other key sees."""
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
    """A flush changes no read: what was written, overwritten or removed before it stays so."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    for step in (1.0, 2.0, None):
        backend.set_current_key("alice")
        state.update(step)
        backend.flush()
        assert state.value() == step


@pytest.mark.clause("V3")
def test_update_none_clears(open_backend: BackendOpener):
    """update(None) leaves nothing behind, not even an entry."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    backend.set_current_key("alice")
    state.update(1.0)
    state.update(None)
    assert state.value() is None
    assert backend.num_state_entries() == 0


@pytest.mark.clause("V4")
def test_default_is_copied_for_each_read(open_backend: BackendOpener):
    """Changing a default that was read changes no later read."""
    backend = open_backend()
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("tags", list[str], default=["a"]))
    backend.set_current_key("alice")
    tags = state.value()
    assert tags is not None
    tags.append("b")
    assert state.value() == ["a"]


@pytest.mark.clause("V5")
def test_isolation_of_values(open_backend: BackendOpener):
    """Mutating what was handed to update, or what value returned, changes nothing stored."""
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
    """A value of another type raises StateTypeError, which names the state, and changes nothing."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    backend.set_current_key("alice")
    state.update(1.0)
    with pytest.raises(errors.StateTypeError, match="spent"):
        state.update("2.0")  # type: ignore[arg-type]
    assert state.value() == 1.0


@pytest.mark.clause("V7")
def test_keys_are_checked(open_backend: BackendOpener):
    """A null key, a key of a wrong type and a use without a key raise three different errors."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    with pytest.raises(errors.NoCurrentKeyError):
        state.value()
    with pytest.raises(errors.NullValueError):
        backend.set_current_key(None)
    with pytest.raises(errors.StateTypeError):
        backend.set_current_key(7)


@pytest.mark.clause("V8")
def test_foreign_key_group_is_refused(open_backend: BackendOpener):
    """A backend refuses to select a key of another subtask's key group."""
    group = mp.assign_to_key_group("alice", 128)
    other = mp.KeyGroupRange(group + 1, 127) if group < 127 else mp.KeyGroupRange(0, 126)
    backend = open_backend(key_group_range=other)
    with pytest.raises(errors.KeyGroupRangeError, match="alice"):
        backend.set_current_key("alice")


@pytest.mark.clause("V9")
def test_keys_are_enumerated_once(open_backend: BackendOpener):
    """keys() gives each key with data once; keys_and_namespaces() gives its pairs."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
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
        # Again, with changes to what the store holds: a key gone, one new, one overwritten.
        for key, value in (("k8", None), ("new", 1.0), ("k9", -1.0)):
            backend.set_current_key(key)
            state.update(value)
        expected = expected - {"k8"} | {"new"}
    assert list(backend.keys("unknown")) == []


@pytest.mark.clause("V10")
def test_apply_to_all_keys_may_change_the_state(open_backend: BackendOpener):
    """apply_to_all_keys visits each key once, and restores the current key.

    The function that it calls may clear and update the state.
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
    """Integers are exact at any size as values; as keys, those beyond 64 bits are refused."""
    backend = open_backend(key_type=int)
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("number", int))
    for value in (0, -1, 2**63, -(2**200), 10**40):
        backend.set_current_key(value % 1000)
        state.update(value)
        backend.flush()
        assert state.value() == value
    with pytest.raises(errors.StateTypeError):
        backend.set_current_key(2**63)


@pytest.mark.clause("V14")
def test_closed_backend(open_backend: BackendOpener, storage):
    """After close every use raises BackendClosedError, but close may be called again."""
    backend = open_backend()
    state = backend.get_partitioned_state(SPENT)
    backend.set_current_key("alice")
    timers = backend.timer_queue("event")
    entries = backend.get_partitioned_state(mp.MapStateDescriptor("entries", str, int))
    items = backend.get_partitioned_state(mp.ListStateDescriptor("items", int))
    largest = backend.get_partitioned_state(mp.ReducingStateDescriptor("largest", max, int))
    backend.close()
    backend.close()
    uses = (
        state.value,
        state.clear,
        lambda: state.update(1.0),
        lambda: entries.get("a"),
        lambda: entries.put("a", 1),
        lambda: entries.remove("a"),
        lambda: list(entries.items()),
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
    for use in uses:
        with pytest.raises(errors.BackendClosedError):
            use()


KEYS: dict[Any, list[Any]] = {
    str: ["", "a", "a\0", "\0", "ä", "\U0001f600", "a" * 300],
    int: [0, 1, -1, 255, 256, -(1 << 63), (1 << 63) - 1],
    bytes: [b"", b"\0", b"\0\0", b"\xff", b"\xff\0"],
    bool: [False, True],
    tuple[str, int]: [("", 0), ("a", -1), ("a", 1), ("a\0", 0), ("b", -(1 << 63))],
    datetime: [datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)],
}


@pytest.mark.clause("V15")
@pytest.mark.parametrize("key_type", list(KEYS), ids=str)
def test_keys_of_each_type(open_backend: BackendOpener, storage, key_type):
    """The backend tells keys of each type apart and lists them, before and after a restore."""
    backend = open_backend(key_type=key_type)
    keys = KEYS[key_type]
    state = backend.get_partitioned_state(TOTAL)
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        state.update(number)
    restored = open_backend(
        key_type=key_type, restore=[backend.snapshot(1, storage).result().handle]
    )
    for each in (backend, restored):
        held = each.get_partitioned_state(TOTAL)
        assert sorted(each.keys("total")) == sorted(keys)
        for number, key in enumerate(keys):
            each.set_current_key(key)
            assert held.value() == number


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
    """Empty, zero, infinite and extreme values count as values, and come back as they were."""
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
            found = held.value()
            assert type(found) is type(value)
            assert repr(found) == repr(value)


class Level(enum.IntEnum):
    """An int as well."""

    LOW = 1


class Word(enum.StrEnum):
    """A str as well."""

    A = "a"


class Rights(enum.Flag):
    """A combination of bits."""

    READ = 1
    RUN = 2


class Shape(enum.Enum):
    """Members whose values have parts."""

    DOT = (0, b"\0")


@attrs.frozen
class Tagged:
    """A key that compares without its label."""

    number: float
    label: str = attrs.field(eq=False)


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
    """Enums, flags and dictionaries by any key keep their type, also through savepoints."""
    descriptor = mp.ValueStateDescriptor("typed", value_type)
    backend = open_backend()
    backend.set_current_key("k")
    backend.get_partitioned_state(descriptor).update(TYPED[value_type])
    backend.flush()
    handles = [take(1, storage).result().handle for take in (backend.snapshot, backend.savepoint)]
    for each in (backend, *(open_backend(restore=[handle]) for handle in handles)):
        each.set_current_key("k")
        found = each.get_partitioned_state(descriptor).value()
        assert type(found) is type(TYPED[value_type])
        same = found == TYPED[value_type] or repr(found) == repr(TYPED[value_type])
        assert same, value_type


@pytest.mark.clause("V18")
def test_keys_are_told_apart_by_their_parts(open_backend: BackendOpener, storage):
    """Map keys and namespaces differ if their parts differ, whatever their class calls equal."""
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
