"""The number of attributes of a backend, which affects the speed of reading them."""

import millpond as mp
import pytest

SHARED_KEYS = 30
"""With this number of attributes, CPython gives an instance a separate dictionary, which is slower."""


@pytest.mark.parametrize("name", ["heap", "rocksdb", "lmdb"])
def test_a_backend_in_use_has_few_attributes(name, tmp_path):
    """A backend has fewer than 30 attributes; with 34, selecting a key took a sixth longer."""
    clock = mp.ManualClock(0)
    with (
        mp.open_keyed_backend(name, key_type=str, directory=tmp_path, clock=clock) as backend,
        mp.open_operator_backend() as own,
    ):
        backend.operator_state = own
        backend.set_current_key("a")
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(1)
        backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int)).put("x", 1)
        backend.timer_queue("event-time", mp.VOID_NAMESPACE.__class__).register(
            1, mp.VOID_NAMESPACE
        )
        backend.snapshot(1, mp.checkpoint_storage("memory:")).result()
        assert len(vars(backend)) < SHARED_KEYS
