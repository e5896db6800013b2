"""Files of one snapshot strategy are deleted under the next one, and after a change of the key type."""

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
    """Return a backend that owns the restored files."""
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


def last_handle(backend, storage, numbers, key_type=int):
    """Take confirmed snapshots, before each of which all keys change; return the last handle."""
    for number in numbers:
        for key in range(20):
            backend.set_current_key(key_type(key))
            backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(number)
        handle = backend.snapshot(number, storage).result().handle
        backend.notify_checkpoint_complete(number)
    return handle


@pytest.mark.parametrize(("first", "second"), [*itertools.product(PLACES, PLACES)])
def test_files_of_the_strategy_before_are_deleted(tmp_path, first, second):
    """After one more confirmed snapshot than are retained, no file of the former strategy is left."""
    storage = MemoryStorage.private()
    with opened(*first, tmp_path / "first") as backend:
        handle = last_handle(backend, storage, (1, 2, 3))
    old = set(storage.list(""))
    assert old
    with opened(*second, tmp_path / "second", [handle]) as backend:
        last = last_handle(backend, storage, range(4, 4 + RETAINED + 2))
    assert not old & (set(storage.list("")) - last.needed_paths - {last.metadata})


@attrs.frozen
class Old:
    """A key."""

    number: int


@attrs.frozen
class New:
    """The class `Old` with an optional note; a restore rewrites keys to this form."""

    number: int
    note: str | None = None


@pytest.mark.parametrize("place", PLACES)
def test_files_of_older_keys_are_deleted(tmp_path, place):
    """No snapshot builds on one with an older key type, so all its files are replaced."""
    storage = MemoryStorage.private()
    with opened(*place, tmp_path / "first", key_type=Old) as backend:
        handle = last_handle(backend, storage, (1, 2, 3), Old)
    old = set(storage.list(""))
    assert old
    with opened(*place, tmp_path / "second", [handle], key_type=New) as backend:
        last_handle(backend, storage, range(4, 4 + RETAINED + 2), New)
    assert not old & set(storage.list(""))
