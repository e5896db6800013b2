"""What is particular to the heap backend."""

import millpond as mp
import pytest
from millpond import errors
from millpond.checkpoint import catch_up


def test_heap_has_no_options():
    """An option for heap is refused: it has none."""
    with pytest.raises(errors.ConfigError, match=r"backend.heap.size"):
        mp.open_keyed_backend("heap", key_type=str, config=mp.Config({"backend.heap.size": 1}))


def test_changes_are_tracked_only_where_somebody_listens():
    """With the full strategy no set of changed addresses is kept."""
    with mp.open_keyed_backend(
        "heap", key_type=str, config=mp.Config({"state.snapshot.strategy": "full"})
    ) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.ValueStateDescriptor("x", int)).update(1)
        assert backend.table_of("x").changed is None


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


def filled(backend, kind, deltas, storage):
    """A backend's snapshot after each round of changes; the number 0 clears."""
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
    """Deltas over entries that are objects already, and over ones still serialized, are applied."""
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
    """Rows are decoded together; the one that cannot be is told by its key all the same."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", float))
        rows = [(b"\1good\0\0", bytes(8)), (b"\1odd\0\0", b"short"), (b"\1well\0\0", bytes(8))]
        with pytest.raises(errors.CorruptSnapshotError, match=b"\1odd".hex()):
            backend.load_rows("v", rows)
