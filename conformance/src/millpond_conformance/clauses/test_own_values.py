"""Clauses: callers and states share no mutable objects, in any call."""

from typing import Any

import millpond as mp
import pytest
from typing_extensions import override

from millpond_conformance.comparing import assert_same
from millpond_conformance.fixtures import BackendOpener

Numbers = dict[str, list[int]]


def join(a: Numbers, b: Numbers) -> Numbers:
    """Return a new dictionary with the entries of both; its values are the arguments' own lists."""
    return {**a, **b}


class Joined(mp.AggregateFunction):
    """An aggregate function that joins dictionaries; its result is the accumulator itself."""

    @override
    def create_accumulator(self):
        return {}

    @override
    def add(self, value, accumulator):
        """Return both, joined."""
        return join(accumulator, value)

    @override
    def get_result(self, accumulator):
        return accumulator

    @override
    def merge(self, a, b):
        """Return both, joined."""
        return join(a, b)


START: Numbers = {"x": [1]}

VALUE = mp.ValueStateDescriptor("value", Numbers)
DEFAULT = mp.ValueStateDescriptor("defaulted", Numbers, default={"x": [1]})
LIST = mp.ListStateDescriptor("list", Numbers)
MAP = mp.MapStateDescriptor("map", str, Numbers)
SUM = mp.ReducingStateDescriptor("sum", join, Numbers)
JOINED = mp.AggregatingStateDescriptor("joined", Joined(), Numbers)
FOLDED = mp.FoldingStateDescriptor("folded", {}, join, Numbers)

WRITES: dict[str, tuple[Any, Any]] = {
    "update": (VALUE, lambda state, value: state.update(value)),
    "update_many": (VALUE, lambda state, value: state.update_many(["k"], [value])),
    "list update": (LIST, lambda state, value: state.update([value])),
    "list add": (LIST, lambda state, value: state.add(value)),
    "list add_all": (LIST, lambda state, value: state.add_all([value])),
    "list add_many": (LIST, lambda state, value: state.add_many(["k"], [value])),
    "map put": (MAP, lambda state, value: state.put("e", value)),
    "map []": (MAP, lambda state, value: state.__setitem__("e", value)),
    "map put_all": (MAP, lambda state, value: state.put_all({"e": value})),
    "reducing add": (SUM, lambda state, value: state.add(value)),
    "reducing add_many": (SUM, lambda state, value: state.add_many(["k"], [value])),
    "aggregating add": (JOINED, lambda state, value: state.add(value)),
    "folding add": (FOLDED, lambda state, value: state.add(value)),
    "default": (DEFAULT, lambda _state, _value: None),
}
"""By name, each call that writes a value, with the state to which it belongs."""

READS: dict[str, dict[str, Any]] = {
    "value": {
        "value": lambda state: state.value(),
        "get_many": lambda state: state.get_many(["k"])[0],
    },
    "list": {
        "get": lambda state: state.get()[0],
        "iter": lambda state: next(iter(state)),
        "get_many": lambda state: state.get_many(["k"])[0][0],
    },
    "map": {
        "get": lambda state: state.get("e"),
        "[]": lambda state: state["e"],
        "items": lambda state: next(iter(state.items()))[1],
        "values": lambda state: next(iter(state.values())),
    },
    "other": {
        "get": lambda state: state.get(),
        "get_many": lambda state: state.get_many(["k"])[0],
    },
}
"""By kind of state, each call that reads a value."""


@pytest.mark.clause("V27")
@pytest.mark.parametrize("call", WRITES)
def test_nothing_is_shared_with_the_caller(open_backend: BackendOpener, call):
    """If the caller modifies an object that it wrote or read by any call, the state is unchanged.

    This includes default values and changes deep inside the object, before and after a flush.
    """
    descriptor, write = WRITES[call]
    kind = descriptor.kind.value
    for flushed in (False, True):
        backend = open_backend()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(descriptor)
        handed: Numbers = {"x": [1]}
        write(state, handed)
        handed["x"].append(2)
        for name, read in READS.get(kind, READS["other"]).items():
            if flushed:
                backend.flush()
            found = read(state)
            assert_same(found, START, (call, name))
            found["x"].append(3)
            found["y"] = [4]
            assert_same(read(state), START, (call, name))


class Letters(mp.TypeSerializer[str]):
    """A user's serializer that returns another type than `bytes`."""

    def __init__(self, give: Any) -> None:
        self.give = give

    @override
    def check(self, value):
        return value

    @override
    def serialize(self, value):
        """Return the string in UTF-8, as an object that `give` makes of the bytes."""
        return self.give(value.encode())

    @override
    def deserialize(self, data):
        return data.decode()

    @override
    def snapshot(self):
        """Return the description of the format. It does not depend on the result type."""
        return mp.SerializerSnapshot("letters")


def _lettered(open_backend: BackendOpener, give: Any, **options: Any) -> tuple[Any, list[Any]]:
    """Return a backend whose keys, namespaces, map keys and values all use `Letters`."""
    letters = Letters(give)
    backend = open_backend(key_type=letters, **options)
    backend.set_current_key("key")
    descriptors = (
        mp.ValueStateDescriptor("value", letters),
        mp.ListStateDescriptor("list", letters),
        mp.MapStateDescriptor("map", letters, letters),
        mp.ReducingStateDescriptor("joined", lambda a, b: a + b, letters),
    )
    return backend, [
        backend.get_partitioned_state(each, namespace="space", namespace_type=letters)
        for each in descriptors
    ]


def _store(backend: Any, state: Any, storage: Any) -> None:
    """Write a value, flush and take a snapshot; a backend may serialize in any of these steps."""
    state.update("a")
    backend.flush()
    backend.snapshot(1, storage).result()


@pytest.mark.clause("V30")
@pytest.mark.parametrize("give", [bytearray, memoryview, bytes.decode, list, lambda _: None])
def test_results_of_serializers(open_backend: BackendOpener, storage, give: Any):
    """If a user's serializer returns a bytearray or a memoryview, the backend stores bytes.

    Any other result raises SerializerResultError, which names the serializer and the state.
    """
    if give not in (bytearray, memoryview):
        backend = open_backend()
        backend.set_current_key("key")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("lettered", Letters(give)))
        with pytest.raises(mp.errors.SerializerResultError, match=r"lettered.*Letters\.serialize"):
            _store(backend, state, storage)
        return
    backend, (value, items, entries, joined) = _lettered(open_backend, give)
    value.update("a")
    items.add_all(["b", "c"])
    entries.put_all({"d": "e", "f": "g"})
    joined.add("h")
    backend.flush()
    joined.add("i")
    handles = [backend.snapshot(1, storage).result().handle]
    handles.append(backend.savepoint(2, storage).result().handle)
    for handle in handles:
        _, (value, items, entries, joined) = _lettered(open_backend, give, restore=[handle])
        assert (value.value(), items.get(), joined.get()) == ("a", ["b", "c"], "hi")
        assert dict(entries.items()) == {"d": "e", "f": "g"}
