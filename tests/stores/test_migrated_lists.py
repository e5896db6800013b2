"""A migration that makes lists longer than one row of a byte store."""

from datetime import timedelta

import millpond as mp
import pytest

LISTS = 1100
"""More lists than a migration writes in one step."""
ELEMENTS = [b""] * 385
"""Elements that fit into one row until each of them gets a time stamp."""
TTL = mp.StateTtlConfig(timedelta(days=365))


@pytest.fixture
def handle(tmp_path):
    """A snapshot of many lists without time stamps."""
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    with mp.open_keyed_backend("heap", key_type=int) as backend:
        state = backend.get_partitioned_state(mp.ListStateDescriptor("l", bytes))
        for key in range(LISTS):
            backend.set_current_key(key)
            state.update(ELEMENTS)
        return backend.snapshot(1, storage).result().handle


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_a_list_that_becomes_several_rows_is_migrated_once(tmp_path, handle, backend):
    """Each list is migrated exactly once, wherever a step of the migration ends."""
    with mp.open_keyed_backend(
        backend, key_type=int, directory=tmp_path / "copy", restore=[handle]
    ) as opened:
        descriptor = mp.ListStateDescriptor("l", bytes).enable_time_to_live(TTL)
        state = opened.get_partitioned_state(descriptor)
        for key in range(LISTS):
            opened.set_current_key(key)
            assert state.get() == ELEMENTS
