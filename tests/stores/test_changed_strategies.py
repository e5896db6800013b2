"""What a strategy leaves is deleted under the next one, or under keys of another type."""

import itertools

import attrs
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


def opened(backend, strategy, directory, restore=(), key_type=int):
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
    return mp.open_keyed_backend(
        backend, key_type=key_type, config=config, restore=restore, **place
    )


def taken(backend, storage, numbers, key_type=int):
    """The handle of the last of some confirmed snapshots, before each of which all keys change."""
    for number in numbers:
        for key in range(20):
            backend.set_current_key(key_type(key))
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


@attrs.frozen
class Old:
    """A key."""

    number: int


@attrs.frozen
class New:
    """The same keys, which may have a note now: a restore rewrites them."""

    number: int
    note: str | None = None


@pytest.mark.parametrize("place", PLACES)
def test_files_of_older_keys_are_deleted(tmp_path, place):
    """Nothing builds on a snapshot of an older key type, so later ones replace all its files."""
    storage = MemoryStorage.private()
    with opened(*place, tmp_path / "first", key_type=Old) as backend:
        handle = taken(backend, storage, (1, 2, 3), Old)
    old = set(storage.list(""))
    assert old
    with opened(*place, tmp_path / "second", [handle], key_type=New) as backend:
        taken(backend, storage, range(4, 4 + RETAINED + 2), New)
    assert not old & set(storage.list(""))
