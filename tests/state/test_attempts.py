"""Several attempts at one snapshot id, and deletion after a confirmation."""

import gc
import threading
import weakref

import millpond as mp
import pytest
from millpond import errors
from millpond.snapshots.catalog import read_catalog
from millpond.storage.memory import MemoryStorage
from millpond_cli.inspection.orphans import orphans
from typing_extensions import override

ITEMS = mp.ListStateDescriptor("items", int)


class Gate(MemoryStorage):
    """Storage that delays all writes until its gate opens."""

    @override
    def open_writer(self, path):
        assert self.gate.wait(10)
        return super().open_writer(path)


@pytest.mark.parametrize("strategy", ["full", "changelog"])
@pytest.mark.parametrize("aborted", [0, 1])
def test_attempts_under_one_number(strategy, aborted):
    """An attempt that still runs, aborted or not, does not affect the operator state of the next one."""
    storage = Gate.private()
    storage.gate = threading.Event()
    settings = {"state.snapshot.strategy": strategy, "checkpoint.inline-threshold": 0}
    with mp.open_keyed_backend("heap", key_type=str, config=mp.Config(settings)) as backend:
        backend.operator_state = mp.open_operator_backend()
        items = backend.operator_state.get_list_state(ITEMS)
        backend.set_current_key("k")
        value = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        attempts = []
        for number in (1, 2):
            items.add(number)
            value.update(number)
            attempts.append(backend.snapshot(5, storage))
            if number == aborted:
                backend.notify_checkpoint_aborted(5)
        storage.gate.set()
        for made, held in [*zip(attempts, ([1], [1, 2]), strict=True)][aborted:]:
            states = made.result().handle.operator_state
            with mp.open_operator_backend(restore=states) as restored:
                assert restored.get_list_state(ITEMS).get() == held


def test_a_written_savepoint_is_forgotten():
    """Savepoints are never confirmed, so the backend keeps no record of them."""
    storage = MemoryStorage.private()
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        first = weakref.ref(backend.savepoint(1, storage).result().handle)
        backend.savepoint(2, storage).result()
        gc.collect()
        assert first() is None


def test_an_aborted_savepoint_is_deleted(tmp_path):
    """An aborted savepoint is deleted with its folder; a confirmed one remains if its id is aborted later."""
    storage = mp.checkpoint_storage(str(tmp_path))
    with mp.open_keyed_backend("heap", key_type=str, directory=None) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(1)
        backend.savepoint(1, storage).result()
        backend.notify_checkpoint_aborted(1)
        assert list(tmp_path.iterdir()) == []
        kept = backend.savepoint(2, storage).result().handle
        backend.notify_checkpoint_complete(2)
        backend.notify_checkpoint_aborted(2)
        assert (tmp_path / kept.folder / "savepoint.json").exists()


class Undeletable(MemoryStorage):
    """Storage that refuses deletions while it is busy."""

    busy = False

    @override
    def delete(self, path):
        if self.busy:
            raise errors.StorageAccessError(path, "503 SlowDown", "Try again")
        super().delete(path)


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_a_file_that_cannot_be_deleted_changes_nothing(backend, tmp_path, caplog):
    """The log reports the file, deltas continue from the confirmed snapshot, and a later one deletes it."""
    storage = Undeletable.private()
    config = mp.Config({"checkpoint.retained": 1, "state.snapshot.max-deltas": 3})
    with mp.open_keyed_backend(
        backend, key_type=str, config=config, directory=tmp_path / "a"
    ) as opened:
        for number in range(200):
            opened.set_current_key(str(number))
            opened.get_partitioned_state(mp.ValueStateDescriptor("v", str)).update("x" * number)
        items = opened.get_partitioned_state(ITEMS)
        opened.set_current_key("k")
        for number in range(1, 8):
            items.add(number)
            handle = opened.snapshot(number, storage).result().handle
            storage.busy = number in (5, 6)
            opened.notify_checkpoint_complete(number)
    assert "503 SlowDown" in caplog.text
    assert set(storage.list("")) <= handle.paths | {handle.metadata}
    with mp.open_keyed_backend(
        backend, key_type=str, restore=[handle], directory=tmp_path / "b"
    ) as restored:
        restored.set_current_key("k")
        assert restored.get_partitioned_state(ITEMS).get() == list(range(1, 8))


def test_where_nothing_can_be_deleted_the_handle_stays_small(caplog):
    """If nothing can be deleted, the oldest files are not tried again; the log says so, and `gc` deletes them."""
    storage = Undeletable.private()
    config = mp.Config({"checkpoint.retained": 1, "state.snapshot.strategy": "full"})
    with mp.open_keyed_backend("heap", key_type=str, config=config, place="q/op") as opened:
        items = opened.get_partitioned_state(ITEMS)
        opened.set_current_key("k")
        storage.busy = True
        for number in range(1, 61):
            items.add(number)
            handle = opened.snapshot(number, storage).result().handle
            caplog.clear()
            opened.notify_checkpoint_complete(number)
    assert len(handle.retired) <= 25
    assert caplog.text.count("not deleted") <= 25
    assert "1 more files cannot be deleted" in caplog.text
    assert "checkpoint gc" in caplog.text
    unneeded = orphans(read_catalog(storage), 1)
    assert len(storage.list("")) == 60
    assert set(unneeded) == set(storage.list("")) - handle.all_paths
    assert len(unneeded) >= 35


@pytest.mark.parametrize("strategy", ["full", "changelog"])
def test_an_aborted_snapshot_that_cannot_be_deleted(strategy, caplog):
    """An abort succeeds even if files cannot be deleted; the log names them for ``checkpoint gc``."""
    storage = Undeletable.private()
    config = mp.Config({"state.snapshot.strategy": strategy, "checkpoint.inline-threshold": 0})
    with mp.open_keyed_backend("heap", key_type=str, config=config) as opened:
        opened.set_current_key("k")
        opened.get_partitioned_state(ITEMS).add(1)
        handle = opened.snapshot(1, storage).result().handle
        storage.busy = True
        opened.notify_checkpoint_aborted(1)
    assert f"{handle.metadata}: not deleted" in caplog.text
