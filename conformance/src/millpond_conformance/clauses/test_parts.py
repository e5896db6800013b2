"""Clauses: restores of several subtasks' snapshots, by each strategy and with any key groups."""

import random
from itertools import product

import millpond as mp
import pytest

from millpond_conformance.clauses.test_snapshots import config
from millpond_conformance.comparing import assert_same
from millpond_conformance.fixtures import BackendOpener

DATA = mp.ValueStateDescriptor("data", bytes)
TOTAL = mp.ValueStateDescriptor("total", int)
ITEMS = mp.ListStateDescriptor("items", int)
BASKET = mp.MapStateDescriptor("basket", str, int)
NUMBERS = mp.ListStateDescriptor("numbers", int)
EVENT = mp.TimeDomain.EVENT_TIME.value


def strategies(open_backend):
    """Return the names of all snapshot strategies but savepoints."""
    return sorted({*open_backend().strategy_names()} - {"savepoint"})


def write(backend, kind, number):
    """Write `number` to the state of this kind, or set a timer, for the current key."""
    if kind == "timer":
        backend.timer_queue(EVENT).register(number, mp.VOID_NAMESPACE)
    elif kind == "value":
        backend.get_partitioned_state(TOTAL).update(number)
    elif kind == "list":
        backend.get_partitioned_state(ITEMS).add(number)
    else:
        backend.get_partitioned_state(BASKET).put("entry", number)


def held(backend):
    """Return the contents of the current key by kind of state, without empty states."""
    found = {
        "value": backend.get_partitioned_state(TOTAL).value(),
        "list": backend.get_partitioned_state(ITEMS).get(),
        "map": backend.get_partitioned_state(BASKET).get("entry"),
    }
    return {kind: number for kind, number in found.items() if number not in (None, [])}


def due(backend):
    """Remove all timers, and return their keys and times."""
    queue = backend.timer_queue(EVENT)
    return sorted((timer.key, timer.timestamp) for timer in queue.due(mp.MAX_TIMESTAMP))


@pytest.mark.clause("S25")
@pytest.mark.parametrize("saved", [False, True])
def test_parts_that_know_different_states(open_backend: BackendOpener, storage, saved):
    """A restore from several subtasks has each state, even if only one of the subtasks has it.

    The order of the snapshots does not matter. This includes savepoints and timers.
    """
    kinds, handles, keys = ("value", "list", "map", "timer"), [], []
    for index, kind in enumerate(kinds):
        groups = mp.key_group_range(128, len(kinds), index)
        names = (f"k{number}" for number in range(1000))
        keys.append(next(n for n in names if mp.assign_to_key_group(n, 128) in groups))
        with open_backend(key_group_range=groups) as part:
            part.set_current_key(keys[-1])
            write(part, kind, index + 1)
            take = part.savepoint if saved else part.snapshot
            handles.append(take(1, storage).result().handle)
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)):
        with open_backend(restore=[handles[index] for index in order]) as whole:
            for index, kind in enumerate(kinds[:3]):
                whole.set_current_key(keys[index])
                assert held(whole) == {kind: [2] if kind == "list" else index + 1}, order
            assert due(whole) == [(keys[3], 4)], order


EDGES = (0, 1, 126, 127, 128, 129, 254, 255, 256, 257, 510, 511, 512, 767, 768, 1023)


def keys_in(groups, count):
    """Return a key for each of the key groups `groups`; `count` is the number of all key groups."""
    wanted, found, number = {*groups}, {}, 0
    while wanted:
        group = mp.assign_to_key_group(f"k{number}", count)
        if group in wanted:
            wanted.discard(group)
            found[group] = f"k{number}"
        number += 1
    return found


@pytest.mark.clause("S26")
@pytest.mark.parametrize("count", [1, 128, 129, 257, 1024])
def test_key_groups_at_the_edges_of_bytes(open_backend: BackendOpener, storage, count):
    """With any number of key groups, the backend stores, lists and restores each group's entries.

    This includes timers. It also includes subtasks whose last key group is at a limit of its stored
    form, such as 255, the largest number of one byte.
    """
    keys = keys_in({group for group in (*EDGES, count - 1) if group < count}, count)
    backend = open_backend(max_parallelism=count)
    for group, key in keys.items():
        backend.set_current_key(key)
        for kind in ("value", "list", "map", "timer"):
            write(backend, kind, group)
    assert sorted(backend.keys("total")) == sorted(keys.values())
    handle = backend.snapshot(1, storage).result().handle
    assert backend.num_state_entries() == 3 * len(keys)
    ends = sorted({*(e for e in (0, 127, 254, 255, 511) if e < count - 1), count - 1})
    start = 0
    for end in ends:
        groups = mp.KeyGroupRange(start, end)
        mine = {group: key for group, key in keys.items() if group in groups}
        with open_backend(max_parallelism=count, key_group_range=groups, restore=[handle]) as part:
            for group, key in mine.items():
                part.set_current_key(key)
                assert held(part) == {"value": group, "list": [group], "map": group}
            assert sorted(part.keys("items")) == sorted(mine.values())
            assert due(part) == sorted((key, group) for group, key in mine.items())
            assert part.num_state_entries() == 3 * len(mine)
        start = end + 1
    assert due(backend) == sorted((key, group) for group, key in keys.items())


ENDS = ("2+ 1+", "3+ 1+ 2-", "2- 1+", "1- 2+ 3-", "3- 2- 1+")
"""Orders in which snapshots are confirmed (+) or aborted (-) after all of them were taken."""


@pytest.mark.clause("A16")
def test_confirmations_in_any_order(open_backend: BackendOpener, storage):
    """Snapshots may be confirmed or aborted in any order; confirmed and later ones are complete.

    This applies to each strategy, also if an older snapshot is confirmed after a newer one.
    """

    def take(backend, number):
        data = random.Random(number).randbytes(40_000)  # noqa: S311 - data, no secret
        backend.get_partitioned_state(DATA).at(f"k{number}").update(data)
        return backend.snapshot(number, storage).result().handle, {f"k{number}": data}

    for strategy, ends in product(strategies(open_backend), ENDS):
        with open_backend(config=config(strategy)) as backend:
            taken = [take(backend, number) for number in (1, 2, 3)]
            confirm, abort = backend.notify_checkpoint_complete, backend.notify_checkpoint_aborted
            for end in ends.split():
                (confirm if end[1] == "+" else abort)(int(end[0]))
            newest = max(int(end[0]) for end in ends.split() if end[1] == "+")
            taken.append(take(backend, 4))
            backend.notify_checkpoint_complete(4)
            taken.append(take(backend, 5))
            for number in (newest, 5):
                with open_backend(restore=[taken[number - 1][0]]) as restored:
                    state = restored.get_partitioned_state(DATA)
                    for _, held in taken[:number]:
                        assert {key: state.at(key).value() for key in held} == held, ends


@pytest.mark.clause("O5")
def test_operator_state_changes_from_snapshot_to_snapshot(open_backend: BackendOpener, storage):
    """With each strategy, a snapshot contains the operator state at the time when it was taken.

    This includes new operator state of the same size, and changes of operator state alone or of
    keyed state alone.
    """
    steps: tuple[tuple[list[int], int | None], ...]  # None: no keyed state is written in this step
    steps = (([1], 1), ([2], 2), ([2], 3), ([3], 3), ([4, 5], 3), ([], 4), ([6], None), ([7], 5))
    steps += (([8], None), ([9], None), ([], None))
    for strategy in strategies(open_backend):
        backend = open_backend(config=config(strategy))
        backend.operator_state = mp.open_operator_backend()
        numbers = backend.operator_state.get_list_state(NUMBERS)
        backend.set_current_key("k")
        for number, (elements, value) in enumerate(steps):
            numbers.update(elements)
            if value is not None:
                backend.get_partitioned_state(TOTAL).update(value)
            handle = backend.snapshot(number, storage).result().handle
            with mp.open_operator_backend(restore=handle.operator_state) as restored:
                found = restored.get_list_state(NUMBERS).get()
                assert_same(found, elements, (strategy, number))
            if number % 4 != 3:
                backend.notify_checkpoint_complete(number)
