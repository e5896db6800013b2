"""Hundreds of states: created together, and limited if files name them."""

import time

import millpond as mp
import pytest
from millpond import errors
from millpond_conformance.opening import open_at
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

STATES = [mp.ValueStateDescriptor(f"s{number}", int) for number in range(200)]


def write(backend, key, states=STATES):
    """Write a value in every state."""
    backend.set_current_key(key)
    for number, descriptor in enumerate(states):
        backend.get_partitioned_state(descriptor).update(number)


def found(backend, key):
    """Return the values of a key."""
    backend.set_current_key(key)
    return [backend.get_partitioned_state(descriptor).value() for descriptor in STATES]


def restored(name, directory, handle, most=1024):
    """Return a backend restored from a snapshot."""
    config = mp.Config(restore={"max_states": most})
    clock = mp.ManualClock(0)
    return mp.open_keyed_backend(
        name, key_type=str, directory=directory, clock=clock, restore=[handle], config=config
    )


def test_two_hundred_states_take_no_minute(tmp_path):
    """Two hundred states are created and restored in a second or two, because all are created together."""
    started = time.process_time()
    with open_at("rocksdb", tmp_path / "first") as backend:
        write(backend, "a")
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:many")).result().handle
        write(backend, "b")
        assert found(backend, "a") == found(backend, "b") == list(range(200))
        backend.flush("v2")
    with open_at("rocksdb", tmp_path / "first", {"v2"}) as backend:
        assert found(backend, "b") == list(range(200))
    made = time.process_time()
    with restored("rocksdb", tmp_path / "second", handle) as backend:
        assert found(backend, "a") == list(range(200))
    assert time.process_time() - made < 5
    assert made - started < 10


def test_families_that_nothing_was_written_to(tmp_path):
    """Families without rows are empty for gets, scans, readers and gauges, and cost nothing later."""
    store = RocksDBStore(tmp_path, RocksDBOptions())
    for number in range(1000):
        store.create_family(f"f{number}")
    reader = store.reader()
    assert store.get("f1", b"k") is None
    assert [*store.scan("f1", b"", None), *reader.scan("f2", b"", None)] == []
    assert store.metrics()["estimated_keys"] == 0
    assert len(store.families()) == 1001
    reader.close()
    store.close()
    again = RocksDBStore(tmp_path, RocksDBOptions())
    assert again.families() == ["default"]
    again.close()


@pytest.mark.parametrize("more", [3, 30])
def test_families_that_come_later_lose_nothing(tmp_path, more):
    """Families can be added to a store with rows, also while a reader is open."""
    store = RocksDBStore(tmp_path, RocksDBOptions())
    store.create_family("f")
    store.write({"f": [(b"k", b"1")]})
    for name in range(more):
        store.create_family(f"a{name}")
    store.write({f"a{name}": [(b"k", b"2")] for name in range(more)})
    assert store.get("f", b"k") == b"1"
    reader = store.reader()
    for name in range(more):
        store.create_family(f"b{name}")
    store.write({"f": [(b"k", b"3")], "b0": [(b"k", b"3")]})
    assert list(reader.scan("f", b"", None)) == [(b"k", b"1")]
    assert list(reader.scan("a1", b"", None)) == [(b"k", b"2")]
    assert (store.get("f", b"k"), store.get("a1", b"k"), store.get("b0", b"k")) == (
        b"3", b"2", b"3",
    )  # fmt: skip
    reader.close()
    store.close()


class _FailingStore(RocksDBStore):
    """Store that fails once to open with more families."""

    fails = True

    def _open(self, directory, options, more=()):
        if more and self.fails:
            self.fails = False
            raise Exception("IO error: No space left on device")  # noqa: TRY002 - as rocksdict does
        super()._open(directory, options, more)


def test_families_that_cannot_be_made_leave_the_store_as_it_was(tmp_path):
    """After a failed creation of families all rows are there, and the write can be repeated."""
    store = _FailingStore(tmp_path, RocksDBOptions())
    store.create_family("f")
    store.write({"f": [(b"k", b"1")]})
    for number in range(20):
        store.create_family(f"a{number}")
    batch = {f"a{number}": [(b"k", b"2")] for number in range(20)}
    with pytest.raises(errors.StoreFullError, match="No space left"):
        store.write(batch)
    assert (store.get("f", b"k"), store.get("a1", b"k")) == (b"1", None)
    store.write(batch)
    assert (store.get("f", b"k"), store.get("a1", b"k")) == (b"1", b"2")
    store.close()
    again = RocksDBStore(tmp_path, RocksDBOptions())
    assert (again.get("f", b"k"), again.get("a19", b"k")) == (b"1", b"2")
    again.close()


@pytest.mark.parametrize("name", ["heap", "lmdb", "rocksdb"])
def test_more_states_than_configured_are_refused(tmp_path, name):
    """Files that name more states than restore.max-states are refused with the option's name."""
    with open_at("heap", tmp_path / "first") as backend:
        write(backend, "a", STATES[:20])
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:limit")).result().handle
    with pytest.raises(errors.RestoreError, match=r"more than 19 states.*restore\.max-states"):
        restored(name, tmp_path / "second", handle, 19)
    restored(name, tmp_path / "third", handle, 20).close()
