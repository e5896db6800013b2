"""Clauses: savepoints, which every backend writes and restores."""

import datetime as dt
import shutil

import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.comparing import assert_same, by_key
from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.typed_states import TypedStates

PORTABLE = "heap"


def put(backend, descriptor, value):
    """Write `value` to the state `descriptor` under the key ``k``."""
    backend.set_current_key("k")
    backend.get_partitioned_state(descriptor).update(value)


@pytest.mark.clause("P1")
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_every_type_survives_a_savepoint(open_backend: BackendOpener, tmp_path, depth):
    """Both this backend and heap restore a value of each type exactly from a savepoint.

    This includes elements, map values, accumulators, the scale of decimals, and nulls at any depth.
    """
    states = TypedStates(depth)
    backend = open_backend()
    states.fill(backend)
    handle = backend.savepoint(1, mp.checkpoint_storage(tmp_path.as_uri())).result().handle
    with mp.open_keyed_backend(PORTABLE, key_type=str, restore=[handle]) as other:
        for restored in (open_backend(restore=[handle]), other):
            states.check(restored)


@pytest.mark.clause("P2")
def test_every_kind_survives_a_savepoint(open_backend: BackendOpener, clock, tmp_path):
    """A savepoint restores lists, maps, namespaces and TTL timestamps, by its handle or path."""
    ttl = mp.StateTtlConfig(dt.timedelta(milliseconds=100))
    items = mp.ListStateDescriptor("items", int)
    scores = mp.MapStateDescriptor("scores", str, float | None)
    fading = mp.ValueStateDescriptor("fading", str).enable_time_to_live(ttl)
    backend = open_backend()
    backend.set_current_key("k")
    backend.get_partitioned_state(items, namespace=7).update([1, 2])
    backend.get_partitioned_state(items, namespace=8).update([3])
    backend.get_partitioned_state(scores).put_all({"a": 1.5, "b": None})
    backend.get_partitioned_state(fading).update("soon gone")
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handle = backend.savepoint(1, storage).result().handle
    both = [open_backend(restore=[given]) for given in (handle, tmp_path / handle.folder)]
    for restored in both:
        restored.set_current_key("k")
        assert_same(restored.get_partitioned_state(items, namespace=7).get(), [1, 2])
        assert_same(restored.get_partitioned_state(items, namespace=8).get(), [3])
        entries = by_key(dict(restored.get_partitioned_state(scores).items()))
        assert_same(entries, {"a": 1.5, "b": None})
        assert_same(restored.get_partitioned_state(fading).value(), "soon gone")
    clock.advance(100)
    for restored in both:
        assert restored.get_partitioned_state(fading).value() is None


@pytest.mark.clause("P3")
def test_a_savepoint_is_not_a_base(open_backend: BackendOpener, tmp_path):
    """A snapshot after a savepoint does not refer to it; the next delta contains all changes."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    total = mp.ValueStateDescriptor("total", int)
    backend = open_backend()
    put(backend, total, 1)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    put(backend, total, 2)
    saved = backend.savepoint(2, storage).result().handle
    backend.notify_checkpoint_complete(2)
    shutil.rmtree(tmp_path / saved.folder)
    handle = backend.snapshot(3, storage).result().handle
    restored = open_backend(restore=[handle])
    restored.set_current_key("k")
    assert restored.get_partitioned_state(total).value() == 2


@pytest.mark.clause("P4")
def test_parts_of_savepoints_are_restored_by_key_group(open_backend: BackendOpener, tmp_path):
    """Three new subtasks can restore the savepoints of two old subtasks.

    Each new subtask has only the entries of its key groups.
    """
    total = mp.ValueStateDescriptor("total", int)
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handles = []
    for index in range(2):
        groups = mp.key_group_range(128, 2, index)
        backend = open_backend(key_group_range=groups)
        for number in range(200):
            if mp.assign_to_key_group(f"k{number}", 128) in groups:
                backend.set_current_key(f"k{number}")
                backend.get_partitioned_state(total).update(number)
        handles.append(backend.savepoint(1, storage).result().handle)
    found = {}
    for index in range(3):
        part = open_backend(key_group_range=mp.key_group_range(128, 3, index), restore=handles)
        state = part.get_partitioned_state(total)
        for key in list(part.keys("total")):
            part.set_current_key(key)
            assert key not in found
            found[key] = state.value()
    assert found == {f"k{number}": number for number in range(200)}


@pytest.mark.clause("P5")
def test_another_max_parallelism_is_refused(open_backend: BackendOpener, tmp_path):
    """A savepoint of 128 key groups can be restored into 256 only after it was re-keyed."""
    total = mp.ValueStateDescriptor("total", int)
    backend = open_backend()
    put(backend, total, 3)
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handle = backend.savepoint(1, storage).result().handle
    with pytest.raises(errors.MaxParallelismError):
        open_backend(restore=[handle], max_parallelism=256)
    again = mp.rekey_savepoint(handle, tmp_path / "rekeyed", 256)
    restored = open_backend(restore=[again], max_parallelism=256)
    restored.set_current_key("k")
    assert restored.get_partitioned_state(total).value() == 3
