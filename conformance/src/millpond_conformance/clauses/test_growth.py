"""Clauses: stores that grow beyond their initial size, and long chains of deltas."""

import random
import threading

import millpond as mp
import pytest
from millpond.plugins import get_registry
from millpond.spi import Capability

from millpond_conformance.clauses.test_async_snapshots import FULL, SlowStorage, runs_alone
from millpond_conformance.clauses.test_snapshots import contents, expected, fill
from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.opening import open_at

BLOB = mp.ValueStateDescriptor("blob", bytes)
COUNT, SIZE = 160, 1 << 18
"""The number of values and the size of each: together 40 MiB."""


def blob_of(key, round_):
    """Return the value for `key` in the round `round_`. Each round has other values."""
    return random.Random(1000 * round_ + key).randbytes(SIZE)  # noqa: S311 - data, no secret


def put_all(backend, keys, round_):
    """Set the value of each of `keys`; flush after every 16 keys."""
    state = backend.get_partitioned_state(BLOB)
    for key in keys:
        backend.set_current_key(f"k{key}")
        state.update(blob_of(key, round_))
        if key % 16 == 0:
            backend.flush()


def holds(backend, rounds):
    """Check the values of all keys; `rounds` has the round in which each key was written last."""
    state = backend.get_partitioned_state(BLOB)
    for key in range(COUNT):
        backend.set_current_key(f"k{key}")
        round_ = rounds.get(key)
        assert state.value() == (None if round_ is None else blob_of(key, round_)), key
    assert backend.num_state_entries() == len(rounds)


@pytest.mark.clause("R17")
def test_a_store_that_was_large_is_reopened(backend_name, tmp_path):
    """A directory that has grown to 40 MiB and lost most entries opens with the remaining entries.

    With the capability local-copy the backend has its version, and can grow again. Without the
    capability it opens empty.
    """
    kept = Capability.LOCAL_COPY in get_registry().backend(backend_name).capabilities
    steps = (
        ("v1", range(COUNT), range(0), dict.fromkeys(range(COUNT), 0)),
        ("v2", range(0), range(10, COUNT), dict.fromkeys(range(10), 0)),
        ("v3", range(5, COUNT), range(0), {k: 0 if k < 5 else 2 for k in range(COUNT)}),
    )
    before = ""
    for round_, (version, written, cleared, left) in enumerate(steps):
        with open_at(backend_name, tmp_path, [before]) as backend:
            if before and not kept:
                assert (backend.version, backend.num_state_entries()) == (None, 0)
                return
            put_all(backend, written, round_)
            for key in cleared:
                backend.set_current_key(f"k{key}")
                backend.get_partitioned_state(BLOB).clear()
            holds(backend, left)
            backend.flush(version)
        before = version
        with open_at(backend_name, tmp_path, [version]) as again:
            assert again.version == (version if kept else None)
            holds(again, left if kept else {})
            again.flush(version)  # counting entries has flushed the bundle without a version name


@pytest.mark.clause("A13")
def test_a_store_grows_while_a_snapshot_is_written(open_backend: BackendOpener):
    """While a snapshot is written, 40 MiB more can be stored; the snapshot contains none of it."""
    storage = SlowStorage()
    backend = open_backend(config=FULL)
    put_all(backend, range(4), 0)
    if not runs_alone(backend):
        storage.gate.set()
    future = backend.snapshot(1, storage)
    # A store may have to wait for the snapshot that reads it before it can grow.
    threading.Timer(0.3, storage.gate.set).start()
    put_all(backend, range(2, COUNT), 1)
    backend.flush()
    holds(backend, {key: int(key > 1) for key in range(COUNT)})
    holds(open_backend(restore=[future.result().handle]), dict.fromkeys(range(4), 0))


@pytest.mark.clause("S20")
def test_a_long_chain_of_deltas(open_backend: BackendOpener, storage):
    """A restore applies all deltas that follow a base, even if there are many."""
    options = {"state.snapshot.strategy": "changelog", "state.snapshot.base-ratio": 1000.0}
    backend = open_backend(config=mp.Config(options))
    handles = []
    for number in range(40):
        fill(backend, number, number + 1)
        handles.append(backend.snapshot(number + 1, storage).result().handle)
        backend.notify_checkpoint_complete(number + 1)
    for number in (3, 9, 17, 39):
        assert contents(open_backend(restore=[handles[number]])) == expected(range(number + 1))
