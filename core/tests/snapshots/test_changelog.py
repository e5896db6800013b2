"""The changelog strategy: base and deltas contain each change, whichever snapshots are confirmed."""

import itertools

import millpond as mp
import pytest
from millpond.storage.memory import MemoryStorage

from core.tests.memory_store import open_memory

MANY = {"state.snapshot.max-deltas": 100, "state.snapshot.base-ratio": 1000}


@pytest.fixture
def storage():
    """A storage in memory."""
    return MemoryStorage.private()


class Subject:
    """A backend that takes snapshots, and a dictionary with its expected content."""

    def __init__(self, backend, storage):
        self.backend, self.storage = backend, storage
        self.model, self.taken = {}, {}
        self.state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))

    def change(self, key, value):
        self.backend.set_current_key(key)
        if value is None:
            self.state.clear()
            self.model.pop(key, None)
        else:
            self.state.update(value)
            self.model[key] = value

    def take(self, number):
        handle = self.backend.snapshot(number, self.storage).result().handle
        self.taken[number] = handle, dict(self.model)
        return handle

    def begin(self):
        """Confirm a first snapshot."""
        self.change("a", 1)
        self.take(1)
        self.confirm(1)

    def abort(self, number):
        self.backend.notify_checkpoint_aborted(number)

    def confirm(self, number):
        self.backend.notify_checkpoint_complete(number)


@pytest.fixture
def subject(tmp_path, storage):
    """A subject whose deltas are limited only by the number of snapshots."""
    with open_memory(tmp_path / "subject", settings=MANY) as backend:
        yield Subject(backend, storage)


def restored(tmp_path, handle, keys="abcdef"):
    """Return the content of a snapshot as another backend restores it."""
    with open_memory(tmp_path / "other", restore=[handle]) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        found = {}
        for key in keys:
            backend.set_current_key(key)
            if state.value() is not None:
                found[key] = state.value()
        return found


def test_a_delta_holds_what_changed_since_the_confirmed_snapshot(subject, tmp_path):
    """A delta contains one row per change, removals included, and no base."""
    for key in "abc":
        subject.change(key, 1)
    base = subject.take(1)
    subject.confirm(1)
    subject.change("a", 2)
    subject.change("b", None)
    second = subject.take(2)
    assert [file.kind for file in second.files] == ["base", "delta"]
    assert second.files[0] == base.files[0]
    assert second.files[1].rows == 2
    assert restored(tmp_path, second) == {"a": 2, "c": 1}


def confirmations():
    """Yield which of three overlapping snapshots are confirmed, in any order."""
    return [chosen for count in range(4) for chosen in itertools.permutations((2, 3, 4), count)]


@pytest.mark.parametrize("taken", [(2, 3, 4), (4, 2, 3)])
@pytest.mark.parametrize("confirmed", confirmations())
def test_no_change_is_lost_between_overlapping_snapshots(subject, tmp_path, taken, confirmed):
    """If several snapshots overlap and only some are confirmed, the next one contains all changes.

    Snapshots taken before a confirmed one are ignored, whatever their ids.
    """
    subject.begin()
    for number in taken:
        subject.change("abcdef"[number - 1], number)
        subject.change("a", number * 10)
        subject.take(number)
    subject.change("f", 5)
    for number in confirmed:
        subject.confirm(number)
    subject.change("e", 6)
    last = subject.take(5)
    latest = max(map(taken.index, confirmed), default=0)
    for number in taken[latest:]:
        handle, model = subject.taken[number]
        assert restored(tmp_path, handle) == model
    assert restored(tmp_path, last) == subject.model
    subject.confirm(5)
    subject.change("b", 7)
    assert restored(tmp_path, subject.take(6)) == subject.model


def test_an_aborted_snapshot_takes_nothing_with_it(subject, tmp_path):
    """The changes of an aborted snapshot are in the next one."""
    subject.begin()
    subject.change("b", 2)
    subject.take(2)
    subject.abort(2)
    subject.change("c", 3)
    assert restored(tmp_path, subject.take(3)) == {"a": 1, "b": 2, "c": 3}


def test_an_id_that_is_used_again_confirms_what_it_has_confirmed(subject, tmp_path):
    """If an id is used again after an abort, its confirmation covers only its own changes."""
    subject.begin()
    subject.change("a", 2)
    subject.take(1)
    subject.abort(1)
    subject.confirm(1)
    assert restored(tmp_path, subject.take(2)) == {"a": 2}


def test_an_overtaken_snapshot_is_deleted_when_it_is_aborted(subject, storage):
    """If a later snapshot is confirmed first, aborting the earlier one deletes only that one's files."""
    subject.change("a", 1)
    first = subject.take(1)
    subject.change("a", 2)
    subject.take(2)
    subject.confirm(2)
    assert first.all_paths <= set(storage.list(""))
    subject.abort(1)
    assert first.all_paths.isdisjoint(storage.list(""))


def test_the_first_of_very_many_overtaken_snapshots_are_forgotten(subject, storage):
    """The last hundred overtaken snapshots are remembered by age, so the newest can be aborted."""
    subject.change("a", 1)
    for number in range(500, 390, -1):
        youngest = subject.take(number)
    subject.take(600)
    subject.confirm(600)
    assert youngest.all_paths <= set(storage.list(""))
    subject.abort(youngest.checkpoint_id)
    assert youngest.all_paths.isdisjoint(storage.list(""))


def test_a_new_base_is_written_when_deltas_are_many(tmp_path, storage):
    """After max-deltas deltas a new base is written, and the delta too, for copies that are slightly behind."""
    settings = {**MANY, "state.snapshot.max-deltas": 2}
    with open_memory(tmp_path / "subject", settings=settings) as backend:
        subject = Subject(backend, storage)
        kinds = []
        for number in range(1, 5):
            subject.change("abcdef"[number - 1], number)
            handle = subject.take(number)
            subject.confirm(number)
            kinds.append([file.kind for file in handle.files])
        assert kinds == [["base"], ["base", "delta"], ["base", "delta", "delta"], ["base"]]
        second = subject.taken[2][0]
        missing = handle.files_after(second.version)
        assert [(file.kind, file.rows) for file in missing] == [("delta", 1), ("delta", 1)]
        assert restored(tmp_path, handle) == subject.model


def test_a_restored_backend_goes_on_with_deltas(subject, tmp_path, storage):
    """A restored backend writes a delta first, with or without a flush before it."""
    subject.change("a", 1)
    handle = subject.take(1)
    with open_memory(tmp_path / "next", settings=MANY, restore=[handle]) as backend:
        backend.strategy("changelog").start(handle)
        following = Subject(backend, storage)
        following.change("b", 2)
        backend.flush()
        following.change("c", 3)
        second = following.take(2)
        assert [(file.kind, file.rows) for file in second.files] == [("base", 1), ("delta", 2)]
        assert restored(tmp_path, second) == {"a": 1, "b": 2, "c": 3}
