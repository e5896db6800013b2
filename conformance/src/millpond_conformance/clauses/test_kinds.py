"""Clauses: list, map, reducing, aggregating and folding state; namespaces."""

import attrs
import millpond as mp
import pytest
from millpond import errors
from typing_extensions import override

from millpond_conformance.fixtures import BackendOpener


@attrs.frozen
class Window:
    """A namespace as windows use it."""

    start: int
    end: int


class Average(mp.AggregateFunction[float, tuple[float, int], float]):
    """An aggregate function that computes the mean from a sum and a count."""

    @override
    def create_accumulator(self):
        return (0.0, 0)

    @override
    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    @override
    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    @override
    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


NAMES = mp.ListStateDescriptor("names", str)
BASKET = mp.MapStateDescriptor("basket", str, int)
LARGEST = mp.ReducingStateDescriptor("largest", max, int)
MEAN = mp.AggregatingStateDescriptor("mean", Average, tuple[float, int])
JOINED = mp.FoldingStateDescriptor("joined", "", lambda text, number: f"{text}{number}", str)


@pytest.mark.clause("K1")
def test_list_keeps_order_and_is_a_copy(open_backend: BackendOpener):
    """An empty list is []. A list keeps the order of its additions, and get() returns a copy."""
    backend = open_backend()
    state = backend.get_partitioned_state(NAMES)
    backend.set_current_key("k")
    assert state.get() == []
    state.add("a")
    state.add_all(["b", "c"])
    state.get().append("x")
    backend.flush()
    state.add("d")
    assert list(state) == ["a", "b", "c", "d"]
    state.update(["z"])
    assert state.get() == ["z"]
    state.update([])
    assert state.get() == []
    assert backend.num_state_entries() == 0


@pytest.mark.clause("K2")
def test_list_refuses_none_whole(open_backend: BackendOpener):
    """For a list state, None as element or argument raises NullValueError, and adds nothing."""
    backend = open_backend()
    state = backend.get_partitioned_state(NAMES)
    backend.set_current_key("k")
    state.add("a")
    for call in (
        lambda: state.add(None),  # type: ignore[arg-type]
        lambda: state.add_all(["b", None]),  # type: ignore[list-item]
        lambda: state.add_all(None),  # type: ignore[arg-type]
        lambda: state.update(None),  # type: ignore[arg-type]
        lambda: state.update(["b", None]),  # type: ignore[list-item]
    ):
        with pytest.raises(errors.NullValueError):
            call()
        assert state.get() == ["a"]


@pytest.mark.clause("K3")
def test_map_is_a_map(open_backend: BackendOpener):
    """The map methods and the dict operators behave like those of a dict."""
    backend = open_backend()
    state = backend.get_partitioned_state(BASKET)
    backend.set_current_key("k")
    assert state.is_empty()
    assert state.get("tea") is None
    assert state.get("tea", 5) == 5
    with pytest.raises(KeyError):
        state["tea"]
    state.put("tea", 1)
    state["milk"] = 2
    state.put_all({"bread": 3, "salt": 4})
    backend.flush()
    del state["salt"]
    state.remove("nothing")
    assert "milk" in state
    assert "salt" not in state
    assert len(state) == 3
    assert dict(state.items()) == {"tea": 1, "milk": 2, "bread": 3}
    assert sorted(state) == sorted(state.keys()) == ["bread", "milk", "tea"]
    assert sorted(state.values()) == [1, 2, 3]
    assert backend.num_state_entries() == 3
    state.clear()
    assert state.is_empty()
    assert backend.num_state_entries() == 0


@pytest.mark.clause("K4")
def test_map_of_many_entries_is_enumerated_as_one_key(open_backend: BackendOpener):
    """A key whose map has many entries is enumerated once."""
    backend = open_backend()
    state = backend.get_partitioned_state(BASKET)
    backend.set_current_key("k")
    state.put_all({f"item{number}": number for number in range(3000)})
    assert list(backend.keys("basket")) == ["k"]
    assert backend.num_state_entries() == 3000


@pytest.mark.clause("K5")
def test_map_values_may_be_none_where_the_type_admits_it(open_backend: BackendOpener):
    """A map value may be None only if its type is optional; `contains` then returns true."""
    backend = open_backend()
    optional = backend.get_partitioned_state(mp.MapStateDescriptor("optional", str, int | None))
    backend.set_current_key("k")
    optional.put("tea", None)
    backend.flush()
    assert optional.contains("tea")
    assert optional.get("tea", 5) is None
    strict = backend.get_partitioned_state(BASKET)
    with pytest.raises(errors.NullValueError):
        strict.put_all({"milk": 1, "tea": None})  # type: ignore[dict-item]
    assert strict.is_empty()


@pytest.mark.clause("K6")
def test_map_may_change_during_iteration(open_backend: BackendOpener):
    """Entries of a map, flushed or not, may be removed and overwritten during an iteration."""
    backend = open_backend()
    state = backend.get_partitioned_state(mp.MapStateDescriptor("many", int, int))
    backend.set_current_key("k")
    state.put_all({number: number for number in range(4096)})
    backend.flush()
    state.put_all({number: number for number in range(4096, 4196)})
    seen = []
    for key, _ in state.items():
        seen.append(key)
        if key % 2:
            state.remove(key)
        else:
            state.put(key, -key)
    assert sorted(seen) == list(range(4196))
    assert dict(state.items()) == {number: -number for number in range(0, 4196, 2)}


@pytest.mark.clause("K7")
def test_maps_of_keys_that_begin_alike_stay_apart(open_backend: BackendOpener):
    """Maps under keys that are prefixes of each other are independent."""
    backend = open_backend()
    state = backend.get_partitioned_state(BASKET)
    keys = ["", "a", "a\0", "a\0b", "ab", "a\xff"]
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        state.put(key, number)
    backend.flush()
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        assert dict(state.items()) == {key: number}


@pytest.mark.clause("K8")
def test_long_map_keys(open_backend: BackendOpener):
    """Look-up and iteration find map keys of 4 KiB, and clear removes them."""
    backend = open_backend()
    state = backend.get_partitioned_state(BASKET)
    entries = {"x" * 4096 + str(number): number for number in range(40)}
    for key in ("short", "k" * 4096):
        backend.set_current_key(key)
        state.put_all(entries)
    backend.flush()
    assert dict(state.items()) == entries
    assert state.get("x" * 4096 + "7") == 7
    state.clear()
    assert state.is_empty()
    backend.set_current_key("short")
    assert dict(state.items()) == entries


@pytest.mark.clause("K9")
def test_reducing(open_backend: BackendOpener):
    """A reducing state returns None if it is empty, else its elements reduced in their order."""
    backend = open_backend()
    state = backend.get_partitioned_state(LARGEST)
    backend.set_current_key("k")
    assert state.get() is None
    joined = backend.get_partitioned_state(mp.ReducingStateDescriptor("joined", str.__add__, str))
    for value in (3, 9, 4):
        state.add(value)
        joined.add(str(value))
        backend.flush()
    assert state.get() == 9
    assert joined.get() == "394"
    with pytest.raises(errors.NullValueError):
        state.add(None)  # type: ignore[arg-type]
    state.clear()
    assert state.get() is None


@pytest.mark.clause("K10")
def test_aggregating(open_backend: BackendOpener):
    """An aggregating state returns the result of its function; if empty, None."""
    backend = open_backend()
    state = backend.get_partitioned_state(MEAN)
    backend.set_current_key("k")
    assert state.get() is None
    for value in (1.0, 2.0, 6.0):
        state.add(value)
    backend.flush()
    assert state.get() == 3.0


@pytest.mark.clause("K11")
def test_folding(open_backend: BackendOpener):
    """A folding state returns the fold of its elements from the initial value; if empty, None."""
    backend = open_backend()
    state = backend.get_partitioned_state(JOINED)
    backend.set_current_key("k")
    assert state.get() is None
    for number in (1, 2, 3):
        state.add(number)
    backend.flush()
    assert state.get() == "123"


@pytest.mark.clause("K12")
def test_folding_does_not_share_its_initial_value(open_backend: BackendOpener):
    """A fold function that changes its accumulator in place does not affect other keys."""

    def append(items, item):
        items.append(item)
        return items

    backend = open_backend()
    descriptor = mp.FoldingStateDescriptor("items", [], append, list[int])
    state = backend.get_partitioned_state(descriptor)
    for key in ("a", "b"):
        backend.set_current_key(key)
        state.add(1)
        assert state.get() == [1]


@pytest.mark.clause("K13")
@pytest.mark.parametrize(
    ("namespace", "other"),
    [("w1", "w2"), (1, -1), (Window(0, 10), Window(10, 20)), ((1, "a"), (1, "b"))],
)
def test_namespaces_are_apart(open_backend: BackendOpener, namespace, other):
    """No namespace shows the entries of another one."""
    backend = open_backend()
    backend.set_current_key("k")
    state = backend.get_partitioned_state(LARGEST, namespace=namespace)
    state.add(1)
    state.set_current_namespace(other)
    assert state.get() is None
    state.add(2)
    backend.flush()
    state.set_current_namespace(namespace)
    assert state.get() == 1
    assert list(backend.keys("largest", other)) == ["k"]
    assert set(backend.keys_and_namespaces("largest")) == {("k", namespace), ("k", other)}
    with pytest.raises(errors.NullValueError):
        state.set_current_namespace(None)


@pytest.mark.clause("K14")
@pytest.mark.parametrize(
    ("descriptor", "values", "merged"),
    [(NAMES, ["t", "a", "b"], ["t", "a", "b"]), (LARGEST, [1, 5, 3], 5), (MEAN, [1, 2, 6], 3)],
)
def test_merge_namespaces(open_backend: BackendOpener, descriptor, values, merged):
    """A merge moves the contents of the source namespaces into the target, in order."""
    backend = open_backend()
    backend.set_current_key("k")
    state = backend.get_partitioned_state(descriptor, namespace="target")
    for namespace, value in zip(("target", "one", "two"), values, strict=True):
        state.set_current_namespace(namespace)
        state.add(value)
    state.merge_namespaces("target", ["one", "missing", "two"])
    state.set_current_namespace("target")
    assert state.get() == merged
    assert backend.num_state_entries() == 1
    state.merge_namespaces("target", [])
    assert state.get() == merged
    with pytest.raises(errors.NullValueError):
        state.merge_namespaces("target", None)


@pytest.mark.clause("K15")
def test_one_name_is_one_kind_of_state(open_backend: BackendOpener):
    """A registered name cannot be requested as another kind of state or with another type."""
    backend = open_backend()
    backend.get_partitioned_state(mp.ValueStateDescriptor("x", int))
    with pytest.raises(errors.StateConflictError):
        backend.get_partitioned_state(mp.ListStateDescriptor("x", int))
    with pytest.raises(errors.StateMigrationError):
        backend.get_partitioned_state(mp.ValueStateDescriptor("x", str))
