"""Lists of byte stores that a migration makes longer than a row may be."""

from datetime import timedelta

import millpond as mp
import pytest

LISTS = 1100
"""More than a migration writes at once, so that it goes on behind rows that it has written."""
ELEMENTS = [b""] * 385
"""Short enough for one row, until each of them has a stamp."""
TTL = mp.StateTtlConfig(timedelta(days=365))


@pytest.fixture
def handle(tmp_path):
    """A snapshot of many lists without stamps."""
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    with mp.open_keyed_backend("heap", key_type=int) as backend:
        state = backend.get_partitioned_state(mp.ListStateDescriptor("l", bytes))
        for key in range(LISTS):
            backend.set_current_key(key)
            state.update(ELEMENTS)
        return backend.snapshot(1, storage).result().handle


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_a_list_that_becomes_several_rows_is_migrated_once(tmp_path, handle, backend):
    """Wherever reading of the store stops between two writes, all lists are as they were."""
    with mp.open_keyed_backend(
        backend, key_type=int, directory=tmp_path / "copy", restore=[handle]
    ) as opened:
        descriptor = mp.ListStateDescriptor("l", bytes).enable_time_to_live(TTL)
        state = opened.get_partitioned_state(descriptor)
        for key in range(LISTS):
            opened.set_current_key(key)
            assert state.get() == ELEMENTS
