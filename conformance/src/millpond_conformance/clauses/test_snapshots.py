"""Clauses: snapshots and restores."""

import json
import re
from typing import Any

import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.fixtures import BackendOpener

TOTAL = mp.ValueStateDescriptor("total", int)
BASKET = mp.MapStateDescriptor("basket", str, int)
STRATEGIES = pytest.mark.parametrize("strategy", ["full", "changelog"])


def config(strategy):
    """Return a configuration with the snapshot strategy `strategy`."""
    return mp.Config({"state.snapshot.strategy": strategy})


def fill(backend, start, end):
    """Write to two states under each key ``k<number>`` for the numbers from `start` to `end`."""
    total = backend.get_partitioned_state(TOTAL)
    basket = backend.get_partitioned_state(BASKET)
    for number in range(start, end):
        backend.set_current_key(f"k{number}")
        total.update(number)
        basket.put("item", number)


def contents(backend):
    """Return the contents of the two states that `fill` writes, by key."""
    total = backend.get_partitioned_state(TOTAL)
    basket = backend.get_partitioned_state(BASKET)
    found = {}
    for key in set(backend.keys("total")) | set(backend.keys("basket")):
        backend.set_current_key(key)
        found[key] = (total.value(), dict(basket.items()))
    return found


def expected(numbers):
    """Return the result of `contents` if `fill` has written the keys with these numbers."""
    return {f"k{number}": (number, {"item": number}) for number in numbers}


@pytest.mark.clause("S1")
@STRATEGIES
def test_restore_gives_back_what_was_there(open_backend: BackendOpener, strategy):
    """A restored backend has the state at the time of the snapshot, and no later change."""
    storage = mp.checkpoint_storage("memory:restore")
    backend = open_backend(config=config(strategy))
    fill(backend, 0, 100)
    handle = backend.snapshot(1, storage).result().handle
    fill(backend, 100, 120)
    restored = open_backend(restore=[handle])
    assert contents(restored) == expected(range(100))


@pytest.mark.clause("S2")
def test_deltas_hold_changes_and_removals(open_backend: BackendOpener):
    """A chain of deltas restores updates and removals in order; a delta has only changed rows."""
    storage = mp.checkpoint_storage("memory:deltas")
    backend = open_backend(config=config("changelog"))
    fill(backend, 0, 200)
    base = backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    backend.set_current_key("k7")
    backend.get_partitioned_state(TOTAL).update(None)
    backend.get_partitioned_state(BASKET).clear()
    fill(backend, 200, 201)
    second = backend.snapshot(2, storage).result()
    backend.notify_checkpoint_complete(2)
    assert second.rows_written == 4
    assert second.bytes_written < base.bytes_written / 2
    assert contents(open_backend(restore=[second.handle])) == expected(set(range(201)) - {7})


@pytest.mark.clause("S3")
def test_unconfirmed_snapshots_are_not_built_on(open_backend):
    """If a snapshot is not confirmed, the files of the next snapshot contain its changes too."""
    storage = mp.checkpoint_storage("memory:unconfirmed")
    backend = open_backend(config=config("changelog"))
    fill(backend, 0, 50)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    fill(backend, 50, 51)
    lost = backend.snapshot(2, storage).result().handle
    fill(backend, 51, 52)
    handle = backend.snapshot(3, storage).result().handle
    assert not {file.path for file in lost.files[1:]} & {file.path for file in handle.files}
    assert contents(open_backend(restore=[handle])) == expected(range(52))


@pytest.mark.clause("S4")
@STRATEGIES
def test_scale_out_and_in(open_backend: BackendOpener, strategy):
    """Subtasks that restore the same snapshot divide its entries.

    A subtask that restores two snapshots has the entries of both.
    """
    storage = mp.checkpoint_storage("memory:rescale")
    backend = open_backend(config=config(strategy))
    fill(backend, 0, 300)
    handle = backend.snapshot(1, storage).result().handle
    halves = [
        open_backend(key_group_range=mp.key_group_range(128, 2, index), restore=[handle])
        for index in range(2)
    ]
    parts = [contents(half) for half in halves]
    assert not parts[0].keys() & parts[1].keys()
    assert parts[0] | parts[1] == expected(range(300))
    handles = [half.snapshot(2, storage).result().handle for half in halves]
    assert contents(open_backend(restore=handles)) == expected(range(300))


@pytest.mark.clause("S5")
def test_empty_snapshot(open_backend: BackendOpener):
    """A snapshot without any registered state has the handle None, and None can be restored."""
    storage = mp.checkpoint_storage("memory:empty")
    assert open_backend().snapshot(1, storage).result().handle is None
    assert contents(open_backend(restore=[None])) == {}


@pytest.mark.clause("S6")
def test_registered_but_empty_state_has_a_handle(open_backend):
    """A snapshot includes a registered state even if the state has no entries."""
    backend = open_backend()
    backend.get_partitioned_state(TOTAL)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:registered")).result().handle
    assert [meta.name for meta in handle.states] == ["total"]


@pytest.mark.clause("S7")
@STRATEGIES
def test_state_that_is_not_accessed_survives(open_backend: BackendOpener, strategy):
    """A snapshot includes restored state that was never requested."""
    storage = mp.checkpoint_storage("memory:untouched")
    backend = open_backend()
    fill(backend, 0, 30)
    first = backend.snapshot(1, storage).result().handle
    middle = open_backend(restore=[first], config=config(strategy))
    middle.set_current_key("other")
    middle.get_partitioned_state(mp.ValueStateDescriptor("new", int)).update(1)
    second = middle.snapshot(2, storage).result().handle
    assert contents(open_backend(restore=[second])) == expected(range(30))


@pytest.mark.clause("S8")
def test_wrong_types_are_refused_and_the_data_stays(open_backend: BackendOpener):
    """Restored state is refused if its type, kind, key type or number of key groups differs.

    After the refusal, a right declaration still reads the state.
    """
    backend = open_backend()
    fill(backend, 0, 3)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:types")).result().handle
    restored = open_backend(restore=[handle])
    with pytest.raises(errors.StateMigrationError, match="total"):
        restored.get_partitioned_state(mp.ValueStateDescriptor("total", str))
    with pytest.raises(errors.StateConflictError):
        restored.get_partitioned_state(mp.ListStateDescriptor("total", int))
    assert contents(restored) == expected(range(3))
    with pytest.raises(errors.StateMigrationError, match="key"):
        open_backend(restore=[handle], key_type=int)
    with pytest.raises(errors.MaxParallelismError):
        open_backend(restore=[handle], max_parallelism=256)


@pytest.mark.clause("S9")
def test_early_flushes_lose_nothing(open_backend: BackendOpener):
    """Reads and snapshots give the same results with a tiny write-back buffer."""
    storage = mp.checkpoint_storage("memory:tiny")
    tiny = mp.Config({"buffer.max-entries": 3, "buffer.max-bytes": "1kb"})
    backend = open_backend(config=tiny)
    fill(backend, 0, 40)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    fill(backend, 40, 80)
    handle = backend.snapshot(2, storage).result().handle
    assert contents(backend) == expected(range(80))
    assert contents(open_backend(restore=[handle])) == expected(range(80))


def parts_of(handles, count, open_backend):
    """Return the backends of `count` subtasks, restored from the snapshots of the old subtasks."""
    return [
        open_backend(restore=handles, key_group_range=mp.key_group_range(128, count, subtask))
        for subtask in range(count)
    ]


@pytest.mark.clause("S10")
def test_uneven_rescales(open_backend: BackendOpener, storage):
    """After rescales to three, two, five subtasks and one, each entry is in exactly one subtask."""
    origin = open_backend()
    fill(origin, 0, 60)
    handles = [origin.snapshot(1, storage).result().handle]
    for number, count in enumerate((3, 2, 5, 1), 2):
        parts = parts_of(handles, count, open_backend)
        found = [contents(part) for part in parts]
        assert sum(map(len, found)) == 60
        assert {key: held for each in found for key, held in each.items()} == expected(range(60))
        handles = [part.snapshot(number, storage).result().handle for part in parts]


@pytest.mark.clause("S11")
def test_an_older_snapshot_is_restored(open_backend: BackendOpener, storage):
    """An older snapshot restores the older state, and new snapshots continue from it.

    The newer snapshots remain complete.
    """
    backend = open_backend()
    handles = []
    for number in range(1, 4):
        fill(backend, 10 * number, 10 * number + 10)
        handles.append(backend.snapshot(number, storage).result().handle)
        backend.notify_checkpoint_complete(number)
    older = open_backend(restore=[handles[0]])
    assert contents(older) == expected(range(10, 20))
    fill(older, 90, 95)
    branch = older.snapshot(4, storage).result().handle
    assert contents(open_backend(restore=[branch])) == expected([*range(10, 20), *range(90, 95)])
    assert contents(open_backend(restore=[handles[2]])) == expected(range(10, 40))


@pytest.mark.clause("S12")
def test_damage_is_found(open_backend: BackendOpener, tmp_path):
    """If a file of a snapshot is changed, cut or missing, the error of a restore names the file."""
    root = tmp_path / "snapshots"
    backend = open_backend()
    fill(backend, 0, 50)
    handle = backend.snapshot(1, mp.checkpoint_storage(root.as_uri())).result().handle
    assert handle.files
    for file in handle.files:
        path = root / file.path
        whole = path.read_bytes()
        middle = len(whole) // 2
        changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (changed, whole[:middle], b"", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(errors.MillpondError, match=re.escape(path.name)):
                open_backend(restore=[handle])
            path.write_bytes(whole)
    assert contents(open_backend(restore=[handle])) == expected(range(50))


@pytest.mark.clause("S13")
def test_a_newer_format_is_refused(open_backend: BackendOpener, storage):
    """A snapshot with a newer format than the core's raises an error that names both versions."""
    backend = open_backend()
    fill(backend, 0, 5)
    handle = backend.snapshot(1, storage).result().handle
    tree = json.loads(handle.to_json())
    newer = json.dumps({**tree, "format_version": tree["format_version"] + 1})
    with pytest.raises(errors.ApiVersionError, match=str(tree["format_version"] + 1)):
        mp.KeyedStateHandle.from_json(newer, storage)
    same = mp.KeyedStateHandle.from_json(json.dumps(tree), storage)
    assert contents(open_backend(restore=[same])) == expected(range(5))


@pytest.mark.clause("S14")
def test_every_strategy_of_the_backend(open_backend: BackendOpener, storage):
    """With each strategy of the backend, a snapshot with changes is restored exactly.

    It is restored into one subtask, and split between two.
    """
    for strategy in open_backend().strategy_names():
        backend = open_backend(config=config(strategy))
        fill(backend, 0, 40)
        backend.snapshot(1, storage).result()
        backend.notify_checkpoint_complete(1)
        fill(backend, 40, 50)
        backend.set_current_key("k0")
        backend.get_partitioned_state(TOTAL).clear()
        backend.get_partitioned_state(BASKET).clear()
        handle = backend.snapshot(2, storage).result().handle
        assert contents(open_backend(restore=[handle])) == expected(range(1, 50)), strategy
        parts = parts_of([handle], 2, open_backend)
        halves = [contents(part) for part in parts]
        assert sum(part.num_state_entries() for part in parts) == 2 * 49, strategy
        assert halves[0] | halves[1] == expected(range(1, 50)), strategy
        assert not halves[0].keys() & halves[1].keys(), strategy


@pytest.mark.clause("S15")
@STRATEGIES
def test_what_nobody_has_requested_is_enumerated(open_backend: BackendOpener, storage, strategy):
    """A restored backend lists each key, namespace and entry once, even of unrequested states."""
    backend = open_backend(config=config(strategy))
    fill(backend, 0, 5)
    spaced = mp.MapStateDescriptor("spaced", str, int)
    state = backend.get_partitioned_state(spaced, (1, "n"))
    for key, namespace in (("k1", (1, "n")), ("k2", (1, "n")), ("k2", (2, "m"))):
        backend.set_current_key(key)
        state.set_current_namespace(namespace)
        state.put_all({"x": 1, "y": 2})
    backend.set_current_key("k0")
    backend.timer_queue("event").register(1, mp.VOID_NAMESPACE)
    pairs = [("k1", (1, "n")), ("k2", (1, "n")), ("k2", (2, "m"))]
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    backend.set_current_key("k2")
    state.set_current_namespace((1, "n"))
    state.put("z", 3)  # in a delta, behind the rows of the other namespace in the base
    restored = open_backend(restore=[backend.snapshot(2, storage).result().handle])
    assert sorted(restored.keys("total")) == sorted(f"k{number}" for number in range(5))
    assert sorted(restored.keys_and_namespaces("spaced")) == pairs
    assert sorted(restored.keys("spaced", (1, "n"))) == ["k1", "k2"]
    assert restored.num_state_entries() == backend.num_state_entries() == 17
    assert list(restored.keys("no such state")) == []
    seen = {}
    restored.apply_to_all_keys(spaced, lambda key, s: seen.update({key: len(s)}), (1, "n"))
    assert seen == {"k1": 2, "k2": 3}
    assert sorted(restored.keys_and_namespaces("spaced")) == pairs


@pytest.mark.clause("S16")
@STRATEGIES
def test_a_restored_pickle_is_not_read_without_permission(
    open_backend: BackendOpener, storage, strategy
):
    """Restored pickled values, map keys and namespaces are refused unless pickle is allowed."""
    pickled = mp.PickleSerializer()
    value = mp.ValueStateDescriptor("value", pickled)
    mapped = mp.MapStateDescriptor("mapped", pickled, int)
    spaced = mp.ValueStateDescriptor("spaced", int)
    backend = open_backend(config=config(strategy))
    backend.set_current_key("k")
    backend.get_partitioned_state(value).update({1, 2})
    backend.get_partitioned_state(mapped).put(1j, 1)
    backend.get_partitioned_state(spaced, 2j, pickled).update(2)
    backend.flush()
    assert backend.get_partitioned_state(value).value() == {1, 2}
    handle = backend.snapshot(1, storage).result().handle
    restored = open_backend(config=config(strategy), restore=[handle])
    restored.set_current_key("k")
    requests: tuple[tuple[Any, ...], ...] = ((value,), (mapped,), (spaced, 2j, pickled))
    for request in requests:
        with pytest.raises(errors.ConfigError, match="allow-pickle"):
            restored.get_partitioned_state(*request)
    allowed = mp.Config({"state.snapshot.strategy": strategy, "serialization.allow-pickle": True})
    restored = open_backend(config=allowed, restore=[handle])
    restored.set_current_key("k")
    assert restored.get_partitioned_state(value).value() == {1, 2}
    assert dict(restored.get_partitioned_state(mapped).items()) == {1j: 1}
    assert restored.get_partitioned_state(spaced, 2j, pickled).value() == 2
