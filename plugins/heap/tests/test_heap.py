"""What is particular to the heap backend."""

import millpond as mp
import pytest
from millpond import errors


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
