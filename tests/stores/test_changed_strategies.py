"""What a strategy leaves is deleted under the next one, on each backend that has both."""

import itertools

import millpond as mp
import pytest
from millpond.storage.memory import MemoryStorage

STRATEGIES = {
    "heap": ("changelog", "full"),
    "lmdb": ("changelog", "full"),
    "rocksdb": ("changelog", "full", "incremental"),
}
PLACES = [(backend, name) for backend, names in STRATEGIES.items() for name in names]
RETAINED = 2


def opened(backend, strategy, directory, restore=()):
    """A backend that owns what it is restored from."""
    settings = {
        "state.snapshot.strategy": strategy,
        "state.snapshot.max-deltas": 1,
        "checkpoint.claim": True,
        "checkpoint.retained": RETAINED,
    }
    if backend == "rocksdb":
        settings["backend.rocksdb.inline-threshold"] = 0
    place = {} if backend == "heap" else {"directory": directory}
    config = mp.Config(settings)
    return mp.open_keyed_backend(backend, key_type=int, config=config, restore=restore, **place)


def taken(backend, storage, numbers):
    """The handle of the last of some confirmed snapshots, before each of which all keys change."""
    for number in numbers:
        for key in range(20):
            backend.set_current_key(key)
            backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(number)
        handle = backend.snapshot(number, storage).result().handle
        backend.notify_checkpoint_complete(number)
    return handle


@pytest.mark.parametrize(("first", "second"), [*itertools.product(PLACES, PLACES)])
def test_files_of_the_strategy_before_are_deleted(tmp_path, first, second):
    """After as many confirmed snapshots as are retained, and one, none of its files is there."""
    storage = MemoryStorage.private()
    with opened(*first, tmp_path / "first") as backend:
        handle = taken(backend, storage, (1, 2, 3))
    old = set(storage.list(""))
    assert old
    with opened(*second, tmp_path / "second", [handle]) as backend:
        last = taken(backend, storage, range(4, 4 + RETAINED + 2))
    assert not old & (set(storage.list("")) - last.needed_paths - {last.metadata})
