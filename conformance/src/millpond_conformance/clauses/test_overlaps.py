"""Clauses: snapshots that overlap changes and each other; many snapshots; many states."""

from concurrent.futures import CancelledError
from contextlib import suppress

import millpond as mp
import pytest

from millpond_conformance.clauses.test_async_snapshots import (
    FULL,
    GatesByNumber,
    SlowStorage,
    begins_early,
    runs_alone,
)
from millpond_conformance.fixtures import BackendOpener

TOTAL = mp.ValueStateDescriptor("total", int)
ITEMS = mp.ListStateDescriptor("items", int)
SCORES = mp.MapStateDescriptor("scores", str, int)
SPACES = (0, 1, 2, 3)
_SNAPSHOTS = 420
"""The number of snapshots. A third of it exceeds the 126 readers that a store may have."""


def write(backend, number, spaces=SPACES):
    """Write `number` to each kind of state, under the namespaces `spaces` of two keys."""
    for key in "ab":
        backend.set_current_key(key)
        for space in spaces:
            backend.get_partitioned_state(TOTAL, space).update(number)
            backend.get_partitioned_state(ITEMS, space).add(number)
            scores = {f"at {number}": number, "last": number}  # one entry is new, one overwritten
            backend.get_partitioned_state(SCORES, space).put_all(scores)


def contents(backend):
    """Return the contents of the three states, by key and namespace."""
    found = {}
    for key in "ab":
        backend.set_current_key(key)
        for space in SPACES:
            states = [backend.get_partitioned_state(s, space) for s in (TOTAL, ITEMS, SCORES)]
            found[key, space] = states[0].value(), states[1].get(), dict(states[2].items())
    return found


def expected(*numbers):
    """Return the result of `contents` after writes of `numbers`, a list for each namespace."""
    return {
        (key, space): (
            last,
            list(each),
            {f"at {number}": number for number in each} | ({"last": last} if each else {}),
        )
        for key in "ab"
        for space, each in zip(SPACES, numbers, strict=True)
        for last in (each[-1] if each else None,)
    }


@pytest.mark.clause("A14")
@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
def test_overlapping_snapshots_end_in_any_order(open_backend: BackendOpener, order):
    """Snapshots that run at once may end in any order, while all namespaces are written to.

    Each holds the state at the time when it was taken.
    """
    storage, backend = GatesByNumber(order), open_backend(config=FULL)
    begins_early(backend)
    if not runs_alone(backend):
        for gate in storage.gates.values():
            gate.set()
    futures, handles = {}, {}
    for number in (1, 2, 3):
        write(backend, number, (0, number))  # one shared namespace, one of this snapshot
        futures[number] = backend.snapshot(number, storage)
    for later, number in enumerate(order, 4):
        storage.gates[number].set()
        handles[number] = futures[number].result(30).handle
        write(backend, later)
    for number, handle in handles.items():
        then = [[each] if each <= number else [] for each in (1, 2, 3)]
        restored = open_backend(restore=[handle])
        assert contents(restored) == expected([*range(1, number + 1)], *then)
    assert contents(backend) == expected([*range(1, 7)], *([n, 4, 5, 6] for n in (1, 2, 3)))


@pytest.mark.clause("A15")
def test_a_running_snapshot_of_many_states(open_backend: BackendOpener):
    """A running snapshot of many states holds each of them at the time when it was taken."""
    storage, backend = SlowStorage(), open_backend(config=FULL)
    begins_early(backend)
    if not runs_alone(backend):
        storage.gate.set()
    states = [mp.ValueStateDescriptor(f"state {number}", int) for number in range(70)]
    backend.set_current_key("k")
    for number in (1, 2):
        for descriptor in states:
            backend.get_partitioned_state(descriptor).update(number)
        if number == 1:
            future = backend.snapshot(1, storage)
    backend.flush()
    storage.gate.set()
    restored = open_backend(restore=[future.result(30).handle])
    restored.set_current_key("k")
    assert [restored.get_partitioned_state(each).value() for each in states] == [1] * 70


@pytest.mark.clause("A17")
@pytest.mark.parametrize("strategy", ["full", "changelog"])
def test_restored_state_is_asked_for_while_a_snapshot_runs(
    open_backend: BackendOpener, storage, strategy
):
    """A snapshot includes restored entries that are first read or changed while it runs.

    The snapshot has their values at the time when it was taken. This applies to every kind of state
    and to timers.
    """
    chosen = mp.Config({"state.snapshot.strategy": strategy})
    first = open_backend(config=FULL)
    begins_early(first)
    write(first, 1)
    first.timer_queue("event").register(5, mp.VOID_NAMESPACE)
    handle, slow = first.snapshot(1, storage).result().handle, SlowStorage()
    backend = open_backend(config=chosen, restore=[handle])
    if not runs_alone(backend):
        slow.gate.set()
    future = backend.snapshot(2, slow)
    assert contents(backend) == expected([1], [1], [1], [1])
    write(backend, 2)
    backend.set_current_key("b")
    backend.timer_queue("event").delete(5, mp.VOID_NAMESPACE)
    backend.flush()
    slow.gate.set()
    restored = open_backend(restore=[future.result(30).handle])
    assert contents(restored) == expected([1], [1], [1], [1])
    assert restored.timer_queue("event").earliest() == 5
    assert contents(backend) == expected(*[[1, 2]] * 4)


@pytest.mark.clause("R19")
def test_hundreds_of_snapshots_that_came_to_nothing(open_backend: BackendOpener, storage):
    """After any number of aborted, failed or unconfirmed snapshots, the next one works."""
    broken = mp.checkpoint_storage(f"{storage.uri}-broken?max-file-bytes=10")
    backend = open_backend(config=FULL)
    backend.set_current_key("k")
    state = backend.get_partitioned_state(TOTAL)
    for number in range(_SNAPSHOTS):
        state.update(number)
        if number % 3 == 0:
            with pytest.raises(mp.errors.SnapshotTooLargeError):
                backend.snapshot(number, broken).result()
            continue
        future = backend.snapshot(number, storage)
        if number % 3 == 1:  # it still runs if the backend writes snapshots in the background
            backend.notify_checkpoint_aborted(number)
        with suppress(CancelledError):
            future.result()
    restored = open_backend(restore=[backend.snapshot(_SNAPSHOTS, storage).result().handle])
    restored.set_current_key("k")
    assert restored.get_partitioned_state(TOTAL).value() == _SNAPSHOTS - 1


@pytest.mark.clause("R20")
def test_a_directory_that_is_used_again(open_backend: BackendOpener, tmp_path, storage):
    """A backend in the directory of a closed backend shows none of the closed backend's entries.

    This holds for every call. If the new backend restores an earlier snapshot of the closed one, it
    has the entries of that snapshot alone.
    """
    one, nothing = expected([1], [1], [1], [1]), expected([], [], [], [])
    first = open_backend(directory=tmp_path / "used")
    write(first, 1)
    handle = first.snapshot(1, storage).result().handle
    write(first, 2)
    first.timer_queue("event").register(5, mp.VOID_NAMESPACE)
    first.flush("later")
    first.close()
    second = open_backend(directory=tmp_path / "used", restore=[handle])
    assert contents(second) == one
    assert second.timer_queue("event").earliest() is None
    second.close()
    third = open_backend(directory=tmp_path / "used")
    assert contents(third) == nothing
    assert third.get_partitioned_state(TOTAL, 1).get_many(["a", "b"]).null_count == 2
    write(third, 1)
    third.flush()
    assert contents(third) == one
