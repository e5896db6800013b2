"""Targets: descriptors, backends, and states of every kind: plain, with TTL, with metrics, with both."""

import copy
import inspect
from contextlib import contextmanager

import millpond as mp
from millpond.state import interfaces

from tests.arguments.calling import call, consumed
from tests.arguments.making import (
    AGGREGATING,
    FOLDING,
    LIST,
    MAP,
    REDUCING,
    SORTED_MAP,
    TTL,
    VALUE,
    Last,
    backend,
    second,
    state,
)  # fmt: skip

__all__ = ["TARGETS"]

DESCRIPTORS = {"ValueState": VALUE, "ListState": LIST, "MapState": MAP, "SortedMapState": SORTED_MAP,
               "ReducingState": REDUCING, "AggregatingState": AGGREGATING, "FoldingState": FOLDING}  # fmt: skip
GOOD = {"value": lambda: 1, "values": lambda: [1], "entries": lambda: {"a": 1}, "key": lambda: "a",
        "default": lambda: 1, "namespace": lambda: "v", "target": lambda: "w",
        "sources": lambda: ["v"], "keys": lambda: ["a"], "map_keys": lambda: ["a"],
        "positions": lambda: [0], "start": lambda: "a", "stop": lambda: "b",
        "reverse": lambda: True, "limit": lambda: 1, "ttl": lambda: None}  # fmt: skip
METERS = {"state.latency-track.enabled": True, "state.latency-track.sample-interval": 1,
          "state.size-track.enabled": True, "state.size-track.sample-interval": 1}  # fmt: skip
VARIANTS = {"": (False, {}), " [ttl]": (True, {}), " [metered]": (False, METERS),
            " [ttl, metered]": (True, METERS)}  # fmt: skip


def made(descriptor, expires, settings):
    """Return a state with content in a namespace."""
    descriptor = copy.copy(descriptor)
    if expires:
        descriptor.enable_time_to_live(TTL)
    opened = backend(config=mp.Config(settings)).get_partitioned_state(descriptor, "w")
    if isinstance(opened, interfaces.MapState):
        opened.put("a", 1)
    else:
        getattr(opened, "add", None) or opened.update(1)
    return opened


def methods(kind):
    """Yield the methods of an interface that take arguments, with good values by parameter."""
    interface = getattr(interfaces, kind)
    for name in dir(interface):
        if not name.startswith("_") and name not in interfaces.BETWEEN_LAYERS - {"at"}:
            parameters = [*inspect.signature(getattr(interface, name)).parameters][1:]
            if parameters:
                yield name, {each: GOOD[each] for each in parameters}


def state_targets():
    """Return each method of each state, with each wrapper."""
    for kind, descriptor in DESCRIPTORS.items():
        for variant, how in VARIANTS.items():
            for name, good in methods(kind):
                if (name.endswith("_many") or name == "at") and variant in (" [ttl]", " [metered]"):
                    continue  # the bulk calls have both wrappers or none
                yield f"{kind}.{name}{variant}", (call(maker(descriptor, how), name), good)


def maker(descriptor, how):
    """Return a function that makes a state."""
    return lambda: made(descriptor, *how)


@contextmanager
def missing(key):
    """Allow the KeyError of a map operator for exactly that key."""
    try:
        yield
    except KeyError as error:
        if error.args[0] is not key:
            raise


def operators(key, value):
    """Return targets for the operators of a map."""
    for how in VARIANTS.values():
        found = made(MAP, *how)
        with missing(key):
            found[key]
        with missing(key):
            del found[key]
        found[key] = value
        assert key in found


def function_in_state(kind, given):
    """Return a target in which a user's function returns an odd value to a state."""
    descriptors = {
        "reducing": lambda: mp.ReducingStateDescriptor("odd", lambda *_: given, int),
        "folding": lambda: mp.FoldingStateDescriptor("odd", 0, lambda *_: given, int),
    }
    for expires, settings in VARIANTS.values():
        descriptor = descriptors[kind]()
        if expires:
            descriptor.enable_time_to_live(TTL)
        opened = backend(config=mp.Config(settings)).get_partitioned_state(descriptor)
        opened.add(1)
        opened.add(2)
        opened.get()


def operator_list(method):
    """Return a method of an operator list state."""
    return call(lambda: mp.open_operator_backend().get_list_state(LIST), method)


def broadcast_map():
    """Return a broadcast map."""
    return mp.open_operator_backend().get_broadcast_state(MAP)


OF_NAMESPACES = ("set_current_namespace", "merge_namespaces")
DECLARED = {"name": lambda: "x"}
NAMESPACED = {"descriptor": lambda: VALUE, "namespace": lambda: 1, "namespace_type": lambda: int}
SNAPSHOT = {"checkpoint_id": lambda: 1, "storage": lambda: mp.checkpoint_storage("memory:s")}
KINDS = {
    "ValueStateDescriptor": {"type": lambda: int, "default": lambda: 1},
    "ListStateDescriptor": {"element_type": lambda: int},
    "MapStateDescriptor": {"key_type": lambda: int, "value_type": lambda: int},
    "SortedMapStateDescriptor": {"key_type": lambda: int, "value_type": lambda: int},
    "ReducingStateDescriptor": {"reduce_function": lambda: second, "type": lambda: int},
    "AggregatingStateDescriptor": {"aggregate_function": Last, "accumulator_type": lambda: int},
    "FoldingStateDescriptor": {"initial": lambda: 0, "fold_function": lambda: second,
                               "type": lambda: int},
}  # fmt: skip


def declared(kind):
    """Run a function that requests a state by a descriptor."""
    return lambda **given: state(getattr(mp, kind)(**given))


TARGETS = {
    **dict(state_targets()),
    **{kind: (declared(kind), {**DECLARED, **good}) for kind, good in KINDS.items()},
    **{
        f"{kind}.{method}": (
            call(lambda kind=kind: copy.copy(DESCRIPTORS[kind[: -len("Descriptor")]]), method),
            good,
        )
        for kind in KINDS
        for method, good in (
            ("enable_time_to_live", {"ttl_config": lambda: TTL}),
            ("set_queryable", {"query_name": lambda: "q"}),
        )
    },
    "MapState.put [operators]": (
        operators, {"key": lambda: "a", "value": lambda: 1},
    ),
    "ReducingState.add [function]": (
        lambda value: function_in_state("reducing", value), {"value": lambda: 1},
    ),
    "FoldingState.add [function]": (
        lambda value: function_in_state("folding", value), {"value": lambda: 1},
    ),
    "KeyedStateBackend.set_current_key": (call(backend, "set_current_key"), {"key": lambda: "a"}),
    "KeyedStateBackend.get_partitioned_state": (call(backend, "get_partitioned_state"), NAMESPACED),
    "KeyedStateBackend.snapshot": (
        lambda **given: call(backend, "snapshot")(**given).result(),
        {**SNAPSHOT, "version": lambda: None},
    ),
    "KeyedStateBackend.savepoint": (
        lambda **given: call(backend, "savepoint")(**given).result(), SNAPSHOT,
    ),
    "KeyedStateBackend.keys": (
        consumed(backend, "keys"), {"state_name": lambda: "x", "namespace": lambda: 1},
    ),
    "KeyedStateBackend.keys_and_namespaces": (
        consumed(backend, "keys_and_namespaces"), {"state_name": lambda: "x"},
    ),
    "KeyedStateBackend.apply_to_all_keys": (
        call(backend, "apply_to_all_keys"),
        {"descriptor": lambda: VALUE, "function": lambda: second, "namespace": lambda: 1},
    ),
    "KeyedStateBackend.flush": (call(backend, "flush"), {"version": lambda: "v"}),
    **{
        f"KeyedStateBackend.notify_checkpoint_{what}": (
            call(backend, f"notify_checkpoint_{what}"), {"checkpoint_id": lambda: 1},
        )
        for what in ("complete", "aborted", "subsumed")
    },
    **{
        f"OperatorStateBackend.get_{kind}_state": (
            call(mp.open_operator_backend, f"get_{kind}_state"), {"descriptor": lambda of=of: of},
        )
        for kind, of in (("list", LIST), ("union_list", LIST), ("broadcast", MAP))
    },
    "OperatorStateBackend.snapshot": (
        lambda **given: call(mp.open_operator_backend, "snapshot")(**given).result(), SNAPSHOT,
    ),
    **{
        f"ListState.{name} [operator]": (operator_list(name), good)
        for name, good in methods("ListState") if name not in OF_NAMESPACES
    },
    **{
        f"BroadcastState.{name}": (call(broadcast_map, name), good)
        for name, good in methods("MapState") if name not in OF_NAMESPACES
    },
}  # fmt: skip
