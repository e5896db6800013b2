"""What CPython reads fast: the attributes of a backend, some of which each record needs."""

import millpond as mp
import pytest

SHARED_KEYS = 30
"""From so many attributes on, an instance has a dictionary of its own, which is read more slowly."""


@pytest.mark.parametrize("name", ["heap", "rocksdb", "lmdb"])
def test_a_backend_in_use_has_few_attributes(name, tmp_path):
    """Choosing a key took a sixth longer when the backends had 34; so they have fewer than 30."""
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
