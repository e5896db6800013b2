"""Details of the heap backend."""

import millpond as mp
import pytest
from millpond import errors
from millpond.snapshots.restore import catch_up


def test_heap_has_no_options():
    """An option for heap is refused, because it has none."""
    with pytest.raises(errors.ConfigError, match=r"backend.heap.size"):
        mp.open_keyed_backend("heap", key_type=str, config=mp.Config({"backend.heap.size": 1}))


def test_changes_are_tracked_only_where_somebody_listens():
    """With the full strategy, no set of changed entries is kept."""
    with mp.open_keyed_backend(
        "heap", key_type=str, config=mp.Config({"state.snapshot.strategy": "full"})
    ) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.ValueStateDescriptor("x", int)).update(1)
        assert backend.table_of("x").changed is None


def test_changes_are_tracked_from_the_first_snapshot_on(tmp_path):
    """Changes are recorded from the first snapshot on, so that the next one contains them."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    with mp.open_keyed_backend("heap", key_type=int) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("x", int))
        timers = backend.timer_queue("event-time")
        for key in range(3):
            backend.set_current_key(key)
            state.update(key)
            timers.register(key, mp.VOID_NAMESPACE)
        backend.flush()
        assert backend.table_of("x").changed is None
        backend.snapshot(1, storage).result()
        backend.notify_checkpoint_complete(1)
        state.update(7)
        timers.register(9, mp.VOID_NAMESPACE)
        assert backend.snapshot(2, storage).result().rows_written == 2


def test_rows_loaded_together_are_those_loaded_singly(tmp_path):
    """Loading many rows at once, with repeated keys and removals, equals loading single rows."""
    numbers = [*range(40), *range(0, 40, 3), *range(0, 40, 5), *range(0, 40, 7)]
    removed = [None if at % 4 == 3 else b"%d" % at for at in range(len(numbers))]
    rows = [(bytes([n % 2]) + b"k%d\0\0" % n, v) for n, v in zip(numbers, removed, strict=True)]
    found = []
    for parts in ([rows], [[row] for row in rows]):
        with mp.open_keyed_backend("heap", key_type=str) as backend:
            backend.get_partitioned_state(mp.ValueStateDescriptor("v", bytes))
            for part in parts:
                backend.load_rows("v", part)
            found.append(backend.table_of("v")._groups)
    assert found[0] == found[1]
    assert None in removed


def test_emptied_namespaces_leave_nothing_behind():
    """Clearing the last key of a namespace frees its dictionary."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int), namespace=1)
        for namespace in range(100):
            state.set_current_namespace(namespace)
            state.put("a", 1)
            state.remove("a")
        assert all(not group for group in backend.table_of("m")._groups.values())


def test_emptied_namespaces_are_not_held():
    """A value table's reference to a namespace is freed with the last key."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int), namespace=1)
        for namespace in range(100):
            state.set_current_namespace(namespace)
            state.update(1)
            state.clear()
        state.clear()
        assert not backend.table_of("v")._held_within


def filled(backend, kind, deltas, storage):
    """Return a backend's snapshot after each round of changes; the number 0 clears."""
    handles = []
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
    for number, delta in enumerate(deltas, 1):
        for key, value in delta:
            backend.set_current_key(key)
            state.update(kind(value) if value else None)
        handles.append(backend.snapshot(number, storage).result().handle)
        backend.notify_checkpoint_complete(number)
    return handles


@pytest.mark.parametrize("keys", [["a", "a\0", "é", "", "b"], [0, -1, 2**63 - 1, 7, -(2**63)]])
def test_a_kept_backend_catches_up_with_changed_new_and_removed_entries(keys, tmp_path):
    """Deltas are applied over decoded and undecoded entries."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    first, second = [(key, 1) for key in keys[:4]], [(keys[0], 0), (keys[1], 5), (keys[4], 6)]
    with mp.open_keyed_backend("heap", key_type=type(keys[0])) as writing:
        before, after = filled(writing, int, [first, second], storage)
    expected = {keys[1]: 5, keys[2]: 1, keys[3]: 1, keys[4]: 6}
    for requested_first in (True, False):
        with mp.open_keyed_backend("heap", key_type=type(keys[0]), restore=[before]) as behind:
            behind.flush(before.version)
            if requested_first:
                behind.get_partitioned_state(mp.ValueStateDescriptor("v", int))
            assert catch_up(behind, after)
            state = behind.get_partitioned_state(mp.ValueStateDescriptor("v", int))
            found = {}
            for key in behind.keys("v"):
                behind.set_current_key(key)
                found[key] = state.value()
            assert found == expected


def test_a_row_that_cannot_be_decoded_is_named(tmp_path):
    """Rows are decoded together; an undecodable one is still reported with its key."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", float))
        rows = [(b"\1good\0\0", bytes(8)), (b"\1odd\0\0", b"short"), (b"\1well\0\0", bytes(8))]
        with pytest.raises(errors.CorruptSnapshotError, match=b"\1odd".hex()):
            backend.load_rows("v", rows)
