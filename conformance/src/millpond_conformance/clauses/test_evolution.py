"""Clauses: declared types that change between a snapshot and its restore."""

import dataclasses
import datetime as dt
import decimal
import enum

import attrs
import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.comparing import assert_same
from millpond_conformance.fixtures import BackendOpener


class Color(enum.Enum):
    """The enum whose members are stored."""

    RED = "r"
    BLUE = "b"


class MoreColors(enum.Enum):
    """`Color` with one more member, another order and a changed value."""

    GREEN = "g"
    BLUE = "b"
    RED = "red"


@attrs.define
class Order:
    """The stored class."""

    count: int
    sum: int
    color: Color
    note: str = ""


@attrs.define
class NewOrder:
    """`Order` with a field added, one removed, one renamed and widened, and an extended enum."""

    color: MoreColors
    total: float = attrs.field(metadata=mp.renamed_from("sum"))
    count: int
    tags: list[str] = attrs.field(factory=lambda: ["old"])


@attrs.frozen
class Place:
    """The stored type of a namespace and of map keys."""

    city: str


@attrs.frozen
class Shop:
    """`Place` with an additional optional field at the end."""

    city: str
    number: int | None = None


@attrs.define
class Grown:
    """`Order` with an additional field without a default."""

    count: int
    sum: int
    color: Color
    added: int
    note: str = ""


@attrs.define
class Renamed:
    """`Order` with a field renamed, but without `renamed_from`."""

    number: int
    sum: int
    color: Color
    note: str = ""


@dataclasses.dataclass
class Reordered:
    """A class with the fields of `Order` in another order."""

    note: str
    color: Color
    sum: int
    count: int


STORED = Order(2, 10, Color.RED, "n")


def restart(open_backend, descriptor, values, again):
    """Write `values` by key, and return them as a restored backend reads them.

    The restored backend then takes a second snapshot. A backend that restores this second snapshot
    must return equal values.

    Args:
        open_backend: the function that opens backends.
        descriptor: the descriptor with which the values are written.
        values: the values by key.
        again: the descriptor with which the restored backends read the values.
    """
    storage = mp.checkpoint_storage("memory:evolution")
    backend = open_backend()
    state = backend.get_partitioned_state(descriptor)
    for key, value in values.items():
        backend.set_current_key(key)
        state.update(value)
    handle = backend.snapshot(1, storage).result().handle
    for claim in (False, True):
        config = mp.Config({"checkpoint.claim": claim})
        restored = open_backend(restore=[handle], config=config)
        first = read(restored, again, values)
        second_handle = restored.snapshot(2, storage).result().handle
        assert_same(read(open_backend(restore=[second_handle]), again, values), first)
    return first


def read(backend, descriptor, keys):
    """Return the contents of the state `descriptor` for each of `keys`, by key."""
    state = backend.get_partitioned_state(descriptor)
    found = {}
    for key in keys:
        backend.set_current_key(key)
        found[key] = state.get() if hasattr(state, "get") else state.value()
    return found


def value(declared):
    """Return the descriptor of a value state of the type `declared`."""
    return mp.ValueStateDescriptor("state", declared)


@pytest.mark.clause("E1")
@pytest.mark.parametrize(
    ("stored", "values", "declared", "expected"),
    [
        (int, {"a": 7, "b": -(1 << 40)}, float, {"a": 7.0, "b": -float(1 << 40)}),
        (int, {"a": 1 << 80}, decimal.Decimal, {"a": decimal.Decimal(1 << 80)}),
        (int, {"a": 7}, int | None, {"a": 7}),
        (list[int], {"a": [1, 2]}, list[float], {"a": [1.0, 2.0]}),
        (dict[str, int], {"a": {"x": 1}}, dict[str, int | None], {"a": {"x": 1}}),
        (Color, {"a": Color.RED}, MoreColors, {"a": MoreColors.RED}),
        (Order, {"a": STORED}, Reordered, {"a": Reordered("n", Color.RED, 10, 2)}),
        (Order, {"a": STORED}, NewOrder, {"a": NewOrder(MoreColors.RED, 10.0, 2, ["old"])}),
        (
            list[Order],
            {"a": [STORED]},
            list[NewOrder],
            {"a": [NewOrder(MoreColors.RED, 10.0, 2, ["old"])]},
        ),
    ],
    ids=str,
)
def test_values_are_brought_to_the_declared_type(
    open_backend: BackendOpener, stored, values, declared, expected
):
    """If a restored state is declared with another type, reads return old values in this type.

    This holds immediately after the restore, and after a second snapshot and restore.
    """
    found = restart(open_backend, value(stored), values, value(declared))
    assert_same(found, expected)


@pytest.mark.clause("E2")
@pytest.mark.parametrize(
    ("declared", "field"),
    [(str, ""), (Grown, "added"), (Renamed, "number"), (list[int], "")],
    ids=str,
)
def test_what_cannot_become_the_declared_type_is_refused(
    open_backend: BackendOpener, declared, field
):
    """If stored values cannot become the declared type, the request of the state raises an error.

    The error names the state, both types and the field. A later request with the old type still
    reads the values.
    """
    backend = open_backend()
    backend.set_current_key("a")
    backend.get_partitioned_state(value(Order)).update(STORED)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:refused")).result().handle
    restored = open_backend(restore=[handle])
    with pytest.raises(errors.StateMigrationError, match="'state'") as caught:
        restored.get_partitioned_state(value(declared))
    assert caught.value.field == field
    assert "count" in caught.value.stored
    assert caught.value.declared
    assert_same(read(restored, value(Order), ["a"]), {"a": STORED})


@pytest.mark.clause("E3")
def test_a_number_that_is_not_exact_as_float_is_refused(open_backend: BackendOpener):
    """Widening changes no value: for 2**53 + 1, float is refused, and int still reads it."""
    backend = open_backend()
    backend.set_current_key("a")
    backend.get_partitioned_state(value(int)).update(2**53 + 1)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:exact")).result().handle
    restored = open_backend(restore=[handle])
    with pytest.raises(errors.StateMigrationError, match=r"cannot hold .* exactly"):
        restored.get_partitioned_state(value(float))
    assert_same(read(restored, value(int), ["a"]), {"a": 2**53 + 1})


@pytest.mark.clause("E4")
def test_elements_and_map_values_evolve_and_map_keys_do_not(open_backend: BackendOpener):
    """List elements and map values migrate; map keys and namespaces of another kind are refused."""
    backend = open_backend()
    backend.set_current_key("a")
    backend.get_partitioned_state(mp.ListStateDescriptor("items", int)).update([1, 2])
    backend.get_partitioned_state(mp.MapStateDescriptor("scores", str, int)).put("x", 1)
    backend.get_partitioned_state(mp.ValueStateDescriptor("spaced", int), namespace=1).update(1)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:parts")).result().handle
    restored = open_backend(restore=[handle])
    restored.set_current_key("a")
    items = restored.get_partitioned_state(mp.ListStateDescriptor("items", float))
    assert_same(items.get(), [1.0, 2.0])
    with pytest.raises(errors.StateMigrationError, match="map key"):
        restored.get_partitioned_state(mp.MapStateDescriptor("scores", bytes, int))
    scores = restored.get_partitioned_state(mp.MapStateDescriptor("scores", str, float | None))
    assert_same(dict(scores.items()), {"x": 1.0})
    with pytest.raises(errors.StateMigrationError, match="namespace"):
        restored.get_partitioned_state(mp.ValueStateDescriptor("spaced", int), namespace="one")


@pytest.mark.clause("E5")
@pytest.mark.switches_ttl
def test_ttl_may_be_switched_on(open_backend: BackendOpener, clock):
    """If TTL is switched on in a restored state, old entries count as written at the restore.

    This applies to every kind of state.
    """
    ttl = mp.StateTtlConfig(dt.timedelta(milliseconds=100))
    kinds = (
        value(int),
        mp.ListStateDescriptor("items", int),
        mp.MapStateDescriptor("map", str, int),
        mp.ReducingStateDescriptor("sum", int.__add__, int),
    )
    backend = open_backend()
    backend.set_current_key("a")
    held, items, entries, total = map(backend.get_partitioned_state, kinds)
    held.update(1)
    items.add_all([1, 2])
    entries.put_all({"b": 1, "c": 2})
    total.add(3)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:ttl-on")).result().handle
    clock.set(1000)
    restored = open_backend(restore=[handle])
    restored.set_current_key("a")
    fading = [restored.get_partitioned_state(each.enable_time_to_live(ttl)) for each in kinds]
    held, items, entries, total = fading

    def shown():
        return held.value(), items.get(), sorted(entries.items()), total.get()

    clock.advance(99)
    assert shown() == (1, [1, 2], [("b", 1), ("c", 2)], 3)
    clock.advance(1)
    assert shown() == (None, [], [], None)


@pytest.mark.clause("E6")
@pytest.mark.switches_ttl
def test_ttl_may_be_switched_off(open_backend: BackendOpener, clock):
    """If TTL is switched off in a restored state, entries that had expired before are gone.

    All other entries never expire. In a list, this applies to each element.
    """
    ttl = mp.StateTtlConfig(dt.timedelta(milliseconds=100))

    def states(backend, *, fading):
        made = (
            mp.ListStateDescriptor("items", str),
            mp.MapStateDescriptor("map", str, str),
            mp.ValueStateDescriptor("value", str),
        )
        chosen = [each.enable_time_to_live(ttl) if fading else each for each in made]
        return [backend.get_partitioned_state(each) for each in chosen]

    backend = open_backend()
    for key, moment in (("early", 0), ("late", 50)):
        clock.set(moment)
        items, entries, held = states(backend, fading=True)
        backend.set_current_key("a")
        items.add(key)
        entries.put(key, key)
        backend.set_current_key(key)
        held.update(key)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:ttl-off")).result().handle
    clock.set(100)
    restored = open_backend(restore=[handle])
    items, entries, held = states(restored, fading=False)
    clock.set(10_000)
    restored.set_current_key("a")
    assert items.get() == ["late"]
    assert dict(entries.items()) == {"late": "late"}
    assert list(restored.keys("value")) == ["late"]
    for key, left in (("early", None), ("late", "late")):
        restored.set_current_key(key)
        assert held.value() == left


def put_places(backend, keys):
    """Put a value into a namespace and an entry into a map, under each key, by `Place`."""
    for key in keys:
        backend.set_current_key(key)
        backend.get_partitioned_state(value(str), namespace=Place("rome")).update(key)
        backend.get_partitioned_state(mp.MapStateDescriptor("map", Place, str)).put(
            Place("bonn"), key
        )


def shops_of(backend, key):
    """Return the value, all map entries and one map value of `key`, found by namespace `Shop`."""
    backend.set_current_key(key)
    entries = backend.get_partitioned_state(mp.MapStateDescriptor("map", Shop, str))
    spaced = backend.get_partitioned_state(value(str), namespace=Shop("rome"))
    return spaced.value(), dict(entries.items()), entries.get(Shop("bonn"))


@pytest.mark.clause("E7")
def test_namespaces_and_map_keys_grow(open_backend: BackendOpener):
    """The type of a namespace or map key may get an additional optional field at its end.

    Entries are then found only under namespaces and map keys with this field. This applies to the
    backend that restores the entries, and to a backend that restores the first backend's next
    snapshot, even if that snapshot is a delta.
    """
    storage = mp.checkpoint_storage("memory:shops")
    claiming = mp.Config({"checkpoint.claim": True})
    backend = open_backend()
    put_places(backend, "abc")
    handle = backend.snapshot(1, storage).result().handle
    for number in (2, 3):
        backend = open_backend(restore=[handle], config=claiming)
        for key in "abc":
            assert shops_of(backend, key) == (key, {Shop("bonn"): key}, key)
        assert backend.num_state_entries() == 6
        handle = backend.snapshot(number, storage).result().handle
