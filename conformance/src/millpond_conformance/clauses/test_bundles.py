"""Clauses: several changes to one entry or timer in a bundle, in every order.

A bundle has all changes between two flushes.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import millpond as mp
import pytest

from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.opening import open_at

LOG = mp.Config({"state.snapshot.strategy": "changelog"})
KINDS: dict[str, Any] = {
    "list": mp.ListStateDescriptor("list", int),
    "map": mp.MapStateDescriptor("map", str, int),
    "value": mp.ValueStateDescriptor("value", int),
}
CHANGES: dict[str, dict[str, Any]] = {
    "list": {
        "a": lambda state, n: state.add(n),
        "e": lambda state, n: state.add_all([n, -n]),
        "u": lambda state, n: state.update([n, n]),
        "c": lambda state, _: state.clear(),
    },
    "map": {
        "p": lambda state, n: state.put("one", n),
        "q": lambda state, n: state.put("two", n),
        "r": lambda state, _: state.remove("one"),
        "c": lambda state, _: state.clear(),
    },
    "value": {"u": lambda state, n: state.update(n), "c": lambda state, _: state.clear()},
}


class Plain:
    """A model of a state in plain Python, which gets the same changes as the state."""

    def __init__(self, kind: str) -> None:
        self._map = kind == "map"
        self.held: Any = {} if self._map else [] if kind == "list" else None

    def add(self, value: int) -> None:
        self.held.append(value)

    def add_all(self, values: list[int]) -> None:
        self.held += values

    def update(self, value: Any) -> None:
        self.held = value

    def put(self, key: str, value: int) -> None:
        self.held[key] = value

    def remove(self, key: str) -> None:
        self.held.pop(key, None)

    def clear(self) -> None:
        self.held = {} if self._map else [] if isinstance(self.held, list) else None


def orders(kind: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of bundles: a first one with at most one change, a second one with 1 to 3."""
    names = "".join(CHANGES[kind])
    for first in ("", names[0]):
        for length in (1, 2, 3):
            for second in product(names, repeat=length):
                yield first, "".join(second)


def read(kind: str, state: Any) -> Any:
    """Return the whole content of a state."""
    if kind == "map":
        return dict(state.items())
    return state.get() if kind == "list" else state.value()


@pytest.mark.clause("S21")
@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_changes_an_entry_in_any_order(open_backend: BackendOpener, storage, kind):
    """Reads and deltas show the result of a bundle's changes to one entry, in any order."""
    backend, programs = open_backend(config=LOG), list(orders(kind))
    models = [Plain(kind) for _ in programs]
    for bundle in (0, 1):
        for at, program in enumerate(programs):
            backend.set_current_key(str(at))
            state = backend.get_partitioned_state(KINDS[kind])
            for number, change in enumerate(program[bundle], 1):
                for each in (state, models[at]):
                    CHANGES[kind][change](each, 10 * bundle + number)
        if bundle:
            check(backend, kind, programs, models)
        handle = backend.snapshot(bundle, storage).result().handle
        backend.notify_checkpoint_complete(bundle)
    check(backend, kind, programs, models)
    check(open_backend(restore=[handle]), kind, programs, models)


def check(backend: Any, kind: str, programs: list[Any], models: list[Plain]) -> None:
    """Compare each entry with its model, and the listed keys with the keys that have entries."""
    for at, (program, model) in enumerate(zip(programs, models, strict=True)):
        backend.set_current_key(str(at))
        assert read(kind, backend.get_partitioned_state(KINDS[kind])) == model.held, program
    filled = sorted(str(at) for at, model in enumerate(models) if model.held not in ([], {}, None))
    assert sorted(backend.keys(kind)) == filled


@pytest.mark.clause("M11")
@pytest.mark.parametrize("restored", [False, True])
def test_bundles_set_and_delete_timers_in_any_order(open_backend, storage, restored):
    """A timer is due if its last change has set the timer. Earlier changes have no effect.

    The earliest timer is correct after every flush. This applies to a restore from deltas as well.
    """
    backend = open_backend(config=LOG)
    queue = backend.timer_queue(mp.TimeDomain.EVENT_TIME.value)
    programs = list(product(("", "s", "d", "sd", "ds", "sds", "dsd"), repeat=3))
    left = set[int]()
    for bundle in range(3):
        for at, program in enumerate(programs):
            backend.set_current_key(str(at % 50))
            for change in program[bundle]:
                (queue.register if change == "s" else queue.delete)(at, mp.VOID_NAMESPACE)
                (left.add if change == "s" else left.discard)(at)
        if bundle < 2 or restored:
            handle = backend.snapshot(bundle, storage).result().handle
            backend.notify_checkpoint_complete(bundle)
    if restored:
        backend = open_backend(restore=[handle])
        queue = backend.timer_queue(mp.TimeDomain.EVENT_TIME.value)
    for at in sorted(left)[:40]:
        assert queue.earliest() == at
        backend.set_current_key(str(at % 50))
        queue.delete(at, mp.VOID_NAMESPACE)
        left.discard(at)
    assert [timer.timestamp for timer in queue.due(len(programs))] == sorted(left)


@pytest.mark.clause("C11")
@pytest.mark.switches_ttl
@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_up_leaves_the_current_key(open_backend: BackendOpener, clock, kind):
    """A flush that also removes the expired state of other keys does not change the current key."""
    backend = open_backend()
    ttl = mp.StateTtlConfig(timedelta(milliseconds=100))
    descriptor = type(KINDS[kind])("aging", *[int] if kind != "map" else [str, int])
    state = backend.get_partitioned_state(descriptor.enable_time_to_live(ttl))
    write = {"list": "a", "map": "p", "value": "u"}[kind]
    for moment, keys in ((0, range(30)), (99, ("before", "mine", "then"))):
        clock.set(moment)
        for key in keys:
            backend.set_current_key(str(key))
            CHANGES[kind][write](state, 1)
        backend.flush()
    clock.set(150)
    backend.set_current_key("mine")
    backend.flush()
    assert backend.current_key == "mine"
    state.clear()
    found = {}
    for key in ("before", "mine", "then", "7"):
        backend.set_current_key(key)
        found[key] = bool(read(kind, state))
    assert found == {"before": True, "mine": False, "then": True, "7": False}


ALONE = {
    "value": lambda backend: backend.get_partitioned_state(KINDS["value"]).update(2),
    "no value": lambda backend: backend.get_partitioned_state(KINDS["value"]).clear(),
    "list": lambda backend: backend.get_partitioned_state(KINDS["list"]).add(2),
    "no list": lambda backend: backend.get_partitioned_state(KINDS["list"]).clear(),
    "map": lambda backend: backend.get_partitioned_state(KINDS["map"]).put("more", 2),
    "no map": lambda backend: backend.get_partitioned_state(KINDS["map"]).clear(),
    "timer": lambda backend: backend.timer_queue("event").register(2, mp.VOID_NAMESPACE),
    "no timer": lambda backend: backend.timer_queue("event").delete(1, mp.VOID_NAMESPACE),
}


@pytest.mark.clause("R24")
def test_a_lone_change_ends_the_version_before(backend_name, tmp_path):
    """After a flush without a version name, a directory no longer opens at its earlier version.

    This holds for each kind of state and for timers, after writes and after removals.
    """
    stale = []
    for what, change in ALONE.items():
        with open_at(backend_name, tmp_path / what) as backend:
            backend.set_current_key("k")
            backend.get_partitioned_state(KINDS["value"]).update(1)
            backend.get_partitioned_state(KINDS["list"]).add(1)
            backend.get_partitioned_state(KINDS["map"]).put("one", 1)
            backend.timer_queue("event").register(1, mp.VOID_NAMESPACE)
            backend.flush("v1")
            change(backend)
            backend.flush(None)
        with open_at(backend_name, tmp_path / what, ["v1"]) as again:
            if again.version is not None:
                stale.append(what)
    assert stale == []
