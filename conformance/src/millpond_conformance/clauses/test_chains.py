"""Clauses: snapshots that build on aborted or claimed snapshots, and deltas that are applied."""

import random

import millpond as mp
import pytest
from millpond.snapshots.restore import catch_up

from millpond_conformance.fixtures import BackendOpener

DATA = mp.ValueStateDescriptor("data", bytes)
BASKET = mp.MapStateDescriptor("basket", str, int)
ITEMS = mp.ListStateDescriptor("items", int)


def config(strategy, **more):
    """Return a configuration with a snapshot strategy and the options `more`."""
    return mp.Config({"state.snapshot.strategy": strategy, **more})


def fill(backend, number):
    """Set one key to a value too large to compress well, and every key to a number."""
    data = random.Random(number).randbytes(40_000)  # noqa: S311 - data, no secret
    for key, value in ((f"k{number}", data), ("all", b"%d" % number)):
        backend.set_current_key(key)
        backend.get_partitioned_state(DATA).update(value)


def holds(backend, numbers):
    """Return whether the backend holds exactly the entries that `fill` wrote for `numbers`."""
    found = {}
    for key in list(backend.keys("data")):
        backend.set_current_key(key)
        found[key] = backend.get_partitioned_state(DATA).value()
    data = {f"k{n}": random.Random(n).randbytes(40_000) for n in numbers}  # noqa: S311
    return found == {**data, "all": b"%d" % max(numbers)}


@pytest.mark.clause("S22")
def test_aborted_and_lost_snapshots_of_each_strategy(open_backend: BackendOpener, storage):
    """With each strategy, later snapshots do not need the files of aborted snapshots."""
    for strategy in open_backend().strategy_names():
        backend = open_backend(config=config(strategy))
        for number, fate in enumerate(("confirm", "abort", "abort", "lose", "confirm", "abort")):
            fill(backend, number)
            backend.snapshot(2 * number, storage).result()
            if fate == "confirm":
                backend.notify_checkpoint_complete(2 * number)
            elif fate == "abort":
                backend.notify_checkpoint_aborted(2 * number)
            handle = backend.snapshot(2 * number + 1, storage).result().handle
            restored = open_backend(restore=[handle])
            restored.get_partitioned_state(DATA)
            assert holds(restored, range(number + 1)), (strategy, number)


@pytest.mark.clause("S23")
def test_claimed_snapshots_of_each_strategy(open_backend: BackendOpener, storage):
    """With each strategy, a snapshot that builds on a claimed snapshot is complete.

    This also holds if that snapshot is claimed and built on again.
    """
    for strategy in open_backend().strategy_names():
        claiming = config(strategy, **{"checkpoint.claim": True})
        restore: list[mp.KeyedStateHandle] = []
        for number in range(4):
            backend = open_backend(config=claiming, restore=restore)
            fill(backend, number)
            restore = [backend.snapshot(number, storage).result().handle]
            backend.notify_checkpoint_complete(number)
            backend.close()
            restored = open_backend(restore=restore)
            assert holds(restored, range(number + 1)), (strategy, number)


@pytest.mark.clause("S24")
@pytest.mark.parametrize("requested", [True, False])
@pytest.mark.parametrize("groups", [1, 128])
def test_a_backend_that_is_behind_catches_up(
    open_backend: BackendOpener, storage, requested, groups
):
    """A backend with the state of an earlier snapshot can apply the deltas of later snapshots.

    It then has the entries of the last delta. Entries that a delta has removed are not listed,
    whether or not the states were requested before. Other entries of the same key group remain.
    """
    log, handles = config("changelog"), []
    backend = open_backend(config=log, max_parallelism=groups)
    for number in range(3):
        for key in "abc":
            backend.set_current_key(key)
            basket = backend.get_partitioned_state(BASKET)
            items = backend.get_partitioned_state(ITEMS)
            if number == 0 or key == "c":
                basket.put(f"at {number}", number)
                items.add(number)
            elif key == "b":
                basket.remove("at 0")
                items.clear()
        handles.append(backend.snapshot(number, storage).result().handle)
        backend.notify_checkpoint_complete(number)
    behind = open_backend(config=log, restore=handles[:1], max_parallelism=groups)
    behind.flush(handles[0].version)
    if requested:
        behind.get_partitioned_state(BASKET)
        behind.get_partitioned_state(ITEMS)
    assert catch_up(behind, handles[2])
    assert behind.version == handles[2].version
    for name in ("basket", "items"):
        assert sorted(behind.keys(name)) == ["a", "c"]
    assert behind.num_state_entries() == 6
    found = {}
    for key in "abc":
        behind.set_current_key(key)
        items = behind.get_partitioned_state(ITEMS)
        found[key] = dict(behind.get_partitioned_state(BASKET).items()), items.get()
    all_three = {f"at {number}": number for number in range(3)}
    assert found == {"a": ({"at 0": 0}, [0]), "b": ({}, []), "c": (all_three, [0, 1, 2])}
