"""Clauses: snapshots that run while the state changes."""

import concurrent.futures
import threading
import uuid
from datetime import timedelta

import millpond as mp
import pytest
from millpond.spi import Capability
from millpond.storage.memory import MemoryStorage
from typing_extensions import override

from millpond_conformance.fixtures import BackendOpener

TOTAL = mp.ValueStateDescriptor("total", int)
ITEMS = mp.ListStateDescriptor("items", int)
SCORES = mp.MapStateDescriptor("scores", str, int)
FULL = mp.Config({"state.snapshot.strategy": "full"})


class SlowStorage(MemoryStorage):
    """Storage that delays every write until its gate opens."""

    def __init__(self):
        super().__init__(f"memory:slow-{uuid.uuid4().hex}")
        self.gate = threading.Event()

    @override
    def open_writer(self, path):
        assert self.gate.wait(10)
        return super().open_writer(path)


class GatesByNumber(MemoryStorage):
    """Storage that delays the writes of some snapshots until the gate of their number opens."""

    def __init__(self, numbers):
        super().__init__(f"memory:gates-{uuid.uuid4().hex}")
        self.gates = {number: threading.Event() for number in numbers}

    @override
    def open_writer(self, path):
        for number, gate in self.gates.items():
            assert f"/{number}-" not in path or gate.wait(10)
        return super().open_writer(path)


BEGIN = mp.ValueStateDescriptor("0 begin", bytes)
FIRST = next(key for key in map(str, range(10_000)) if mp.assign_to_key_group(key, 128) == 0)


def begins_early(backend):
    """Write a first row that is so large that slow storage delays a snapshot right after this row.

    A snapshot writes to its file after one megabyte of rows. The row has this size, so the snapshot
    has not read any other row when the storage delays it.
    """
    backend.set_current_key(FIRST)
    backend.get_partitioned_state(BEGIN).update(bytes(1 << 20))


def runs_alone(backend):
    """Return whether snapshots of `backend` run in the background."""
    return Capability.ASYNC_SNAPSHOT in backend.capabilities


def write(backend, number):
    """Write `number` to each state of three keys."""
    for key in ("a", "b", "c"):
        backend.set_current_key(key)
        backend.get_partitioned_state(TOTAL).update(number)
        backend.get_partitioned_state(ITEMS).add(number)
        scores = {f"at {number}": number, "last": number}  # one entry is new, one overwritten
        backend.get_partitioned_state(SCORES).put_all(scores)


def contents(backend):
    """Return the contents of the three states, by key."""
    states = [backend.get_partitioned_state(each) for each in (TOTAL, ITEMS, SCORES)]
    found = {}
    for key in ("a", "b", "c"):
        backend.set_current_key(key)
        found[key] = (states[0].value(), states[1].get(), dict(states[2].items()))
    return found


def expected(numbers):
    """Return the result of `contents` after a call of `write` for each of `numbers` in order."""
    numbers = list(numbers)
    scores = {f"at {number}": number for number in numbers}
    everything = (numbers[-1], numbers, {**scores, "last": numbers[-1]})
    return dict.fromkeys(("a", "b", "c"), everything)


@pytest.mark.clause("A1")
def test_changes_after_the_start_are_not_in_the_snapshot(open_backend: BackendOpener):
    """Each of three simultaneous snapshots holds the state at the time when it was taken.

    Changes after that time are not in the snapshot.
    """
    storage = SlowStorage()
    backend = open_backend(config=FULL)
    begins_early(backend)
    if not runs_alone(backend):
        storage.gate.set()
    futures = []
    for number in range(3):
        write(backend, number)
        futures.append(backend.snapshot(number + 1, storage))
    write(backend, 3)
    backend.set_current_key("b")
    backend.get_partitioned_state(TOTAL).clear()
    backend.get_partitioned_state(ITEMS).clear()
    backend.get_partitioned_state(SCORES).clear()
    backend.flush()
    storage.gate.set()
    for number, future in enumerate(futures):
        restored = open_backend(restore=[future.result().handle])
        assert contents(restored) == expected(range(number + 1))


@pytest.mark.clause("A2")
def test_a_cancelled_snapshot_leaves_no_file(open_backend: BackendOpener):
    """A cancelled snapshot raises CancelledError and leaves no file.

    The backend still works and takes further snapshots. Without the capability async-snapshot no
    snapshot can be cancelled.
    """
    storage = SlowStorage()
    backend = open_backend(config=FULL)
    begins_early(backend)
    write(backend, 0)
    if not runs_alone(backend):
        storage.gate.set()
        assert not backend.snapshot(1, storage).cancel()
        return
    future = backend.snapshot(1, storage)
    assert future.cancel()
    storage.gate.set()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(30)
    assert storage.list("") == []
    write(backend, 1)
    handle = backend.snapshot(2, storage).result().handle
    assert contents(open_backend(restore=[handle])) == expected(range(2))


@pytest.mark.clause("A3")
@pytest.mark.parametrize("aborted", [False, True])
def test_closing_cancels_what_runs(open_backend: BackendOpener, aborted):
    """Closing a backend ends its running snapshots and their threads.

    A snapshot that was aborted or cancelled leaves no file.
    """
    storage = SlowStorage()
    backend = open_backend(config=FULL)
    begins_early(backend)
    write(backend, 0)
    if not runs_alone(backend):
        storage.gate.set()
    future = backend.snapshot(1, storage)
    if aborted:
        backend.notify_checkpoint_aborted(1)
    threading.Timer(0.05, storage.gate.set).start()
    backend.close()
    assert future.done()
    if aborted or future.cancelled():
        assert storage.list("") == []
    for thread in threading.enumerate():
        if thread.name == "millpond-snapshot":
            thread.join(5)
            assert not thread.is_alive()


@pytest.mark.clause("A4")
def test_a_failed_write_is_the_snapshots_error(open_backend: BackendOpener, storage):
    """If the storage fails during a write, only that snapshot fails; the next one is complete."""
    broken = mp.checkpoint_storage(f"{storage.uri}-broken?max-file-bytes=10")
    backend = open_backend()
    write(backend, 0)
    with pytest.raises(mp.errors.SnapshotTooLargeError, match=r"'(total|items|scores)'"):
        backend.snapshot(1, broken).result()
    assert broken.list("") == []
    handle = backend.snapshot(2, storage).result().handle
    assert contents(open_backend(restore=[handle])) == expected(range(1))


@pytest.mark.clause("A5")
def test_an_aborted_snapshot_is_deleted(open_backend: BackendOpener, storage):
    """An abort deletes the snapshot's files; confirmed snapshots remain complete."""
    backend = open_backend()
    write(backend, 0)
    first = backend.snapshot(1, storage).result().handle
    backend.notify_checkpoint_complete(1)
    files = storage.list("")
    write(backend, 1)
    backend.snapshot(2, storage).result()
    backend.notify_checkpoint_aborted(2)
    assert storage.list("") == files
    assert contents(open_backend(restore=[first])) == expected(range(1))
    handle = backend.snapshot(3, storage).result().handle
    assert contents(open_backend(restore=[handle])) == expected(range(2))


@pytest.mark.clause("A6")
def test_subsumed_snapshots_free_their_files(open_backend: BackendOpener, storage):
    """With `checkpoint.retained` 1, the backend deletes files that only older snapshots used."""
    config = mp.Config({"state.snapshot.strategy": "full", "checkpoint.retained": 1})
    backend = open_backend(config=config)
    for number in range(5):
        write(backend, number)
        handle = backend.snapshot(number + 1, storage).result().handle
        backend.notify_checkpoint_complete(number + 1)
    assert sorted(storage.list("")) == [file.path for file in handle.files]
    assert contents(open_backend(restore=[handle])) == expected(range(5))


@pytest.mark.clause("A7")
def test_a_subsumption_frees_files_before_the_retention_does(open_backend: BackendOpener, storage):
    """If a backend is notified of obsolete snapshots, it deletes files that no other one needs."""
    backend = open_backend(config=FULL)
    for number in range(3):
        write(backend, number)
        handle = backend.snapshot(number + 1, storage).result().handle
        backend.notify_checkpoint_complete(number + 1)
    assert len(list(storage.list(""))) == 3
    backend.notify_checkpoint_subsumed(2)
    assert list(storage.list("")) == [file.path for file in handle.files]
    assert contents(open_backend(restore=[handle])) == expected(range(3))


@pytest.mark.clause("A8")
def test_snapshots_run_in_the_background_where_declared(open_backend: BackendOpener):
    """With the capability async-snapshot, snapshot() returns before the files are written.

    Without the capability, snapshot() returns after the files are written.
    """
    storage = SlowStorage()
    backend = open_backend(config=FULL)
    begins_early(backend)
    write(backend, 0)
    if not runs_alone(backend):
        storage.gate.set()
    future = backend.snapshot(1, storage)
    assert future.done() is not runs_alone(backend)
    storage.gate.set()
    handle = future.result(30).handle
    assert not future.cancel()
    assert contents(open_backend(restore=[handle])) == expected(range(1))


@pytest.mark.clause("A9")
def test_notifications_may_come_twice_late_or_of_the_unknown(open_backend, storage):
    """Repeated, late and unknown confirmations and aborts delete nothing and change nothing."""
    backend = open_backend()
    handles = []
    for number in range(1, 4):
        write(backend, number)
        handles.append(backend.snapshot(number, storage).result().handle)
        backend.notify_checkpoint_complete(number)
    files = storage.list("")
    for number in (3, 1, 99):
        backend.notify_checkpoint_complete(number)
    for number in (3, 2, 99):
        backend.notify_checkpoint_aborted(number)
    assert storage.list("") == files
    write(backend, 4)
    handles.append(backend.snapshot(4, storage).result().handle)
    for at, handle in enumerate(handles):
        assert contents(open_backend(restore=[handle])) == expected(range(1, at + 2))


@pytest.mark.clause("A11")
@pytest.mark.switches_ttl
def test_a_migration_changes_no_running_snapshot(open_backend: BackendOpener, storage):
    """A snapshot that runs while a state migrates contains the old type and rows of that type."""
    first = open_backend(config=FULL)
    begins_early(first)
    first.set_current_key("k")
    first.get_partitioned_state(TOTAL).update(7)
    slow = SlowStorage()
    backend = open_backend(config=FULL, restore=[first.snapshot(1, storage).result().handle])
    if not runs_alone(backend):
        slow.gate.set()
    future = backend.snapshot(2, slow)
    ttl = mp.StateTtlConfig(timedelta(hours=1))
    stamped = mp.ValueStateDescriptor("total", int).enable_time_to_live(ttl)
    backend.set_current_key("k")
    assert backend.get_partitioned_state(stamped).value() == 7
    slow.gate.set()
    restored = open_backend(restore=[future.result().handle])
    restored.set_current_key("k")
    assert restored.get_partitioned_state(TOTAL).value() == 7


@pytest.mark.clause("A12")
def test_a_confirmation_leaves_running_snapshots_whole(open_backend: BackendOpener):
    """Overlapping snapshots that are confirmed in order are complete, and leave no extra file."""
    for strategy in open_backend().strategy_names():
        config = mp.Config({"state.snapshot.strategy": strategy, "checkpoint.retained": 1})
        backend = open_backend(config=config)
        begins_early(backend)
        storage = GatesByNumber((3,))
        if not runs_alone(backend):
            storage.gates[3].set()
        futures = {}
        # Snapshots 2 and 3 build on 1, and 4 on 2; 3 is written after 2 was confirmed.
        for step in ("+1", "!1", "+2", "+3", "!2", "+4", "!3", "!4"):
            number = int(step[1])
            if step[0] == "+":
                write(backend, number)
                futures[number] = backend.snapshot(number, storage)
                continue
            if number == 3:
                futures[4].result(30)
                storage.gates[3].set()
            handle = futures[number].result(30).handle
            backend.notify_checkpoint_complete(number)
            restored = contents(open_backend(restore=[handle]))
            assert restored == expected(range(1, number + 1)), (strategy, number)
        if isinstance(handle, mp.KeyedStateHandle):
            assert set(storage.list("")) == handle.paths | {handle.metadata}, strategy
