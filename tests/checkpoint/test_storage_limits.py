"""If the operating system refuses access to a checkpoint directory, the error names file and cure."""

import json
import os

import millpond as mp
import pytest
from millpond import errors
from millpond_conformance.processes import in_a_child

pytestmark = pytest.mark.slow

LIMITED = """
import json, os, resource, sys, tempfile
from pathlib import Path
import millpond as mp
from millpond import errors
what, backend, strategy, folder = sys.argv[1:]
config = mp.Config({"state.snapshot.strategy": strategy})
storage = mp.checkpoint_storage(folder + "/checkpoints")
saved = mp.checkpoint_storage(folder + "/saved")
DATA = mp.ValueStateDescriptor("data", bytes).set_queryable("data")

def limit(what, value):
    resource.setrlimit(what, (value, resource.getrlimit(what)[1]))

def opened(place, restore=()):
    return mp.open_keyed_backend(
        backend, key_type=str, directory=f"{folder}/{place}", config=config, restore=restore
    )

def snapshot(store, number):
    return store.snapshot(number, storage).result().handle

store = opened("first")
store.set_current_key("k")
state = store.get_partitioned_state(DATA)
state.update(os.urandom(200_000))
handle = snapshot(store, 1)
state.update(os.urandom(200_000))
store.flush()
try:
    if what == "restore":
        limit(resource.RLIMIT_FSIZE, 100_000)
        opened("second", [handle])
    if what == "snapshot":
        limit(resource.RLIMIT_FSIZE, 100_000)
        snapshot(store, 2)
    if what == "savepoint":
        limit(resource.RLIMIT_FSIZE, 100_000)
        store.savepoint(2, saved).result()
    if what == "open files":
        limit(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1)
        snapshot(store, 2)
    if what == "reading":
        limit(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1)
        storage.read(handle.metadata, 0, 10)
    if what == "client":
        client = mp.QueryableStateClient
        tempfile.gettempdir()
        limit(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1)
        client(folder + "/checkpoints", backend=backend)
except errors.MillpondError as error:
    limit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
    left = [path.name for path in Path(folder).rglob("*.tmp")]
    assert left == [], left
    if what == "snapshot":
        with opened("third", [snapshot(store, 3)]) as again:
            again.set_current_key("k")
            assert again.get_partitioned_state(DATA).value() == state.value()
    print(json.dumps([type(error).__name__, str(error)]))
"""

ROOM = "Make room on that disk"
FILES = "Raise the limit of open files"


@pytest.mark.parametrize(
    ("what", "backend", "strategy", "name", "cure"),
    [
        ("snapshot", "heap", "changelog", "StorageAccessError", ROOM),
        ("snapshot", "heap", "full", "StorageAccessError", ROOM),
        ("savepoint", "heap", "full", "StorageAccessError", ROOM),
        ("restore", "rocksdb", "incremental", "StoreFullError", "Raise the memory or disk limit"),
        ("open files", "heap", "full", "StorageAccessError", FILES),
        ("reading", "heap", "full", "StorageAccessError", FILES),
        ("client", "lmdb", "full", "StorageAccessError", FILES),
    ],
)
def test_limits_are_told(tmp_path, what, backend, strategy, name, cure):
    """The error names file and cure, nothing incomplete is left, and the next snapshot is complete."""
    done = in_a_child(LIMITED, what, backend, strategy, str(tmp_path))
    assert done.returncode == 0, done.stderr
    found, message = json.loads(done.stdout)
    assert (found, cure in message) == (name, True), message
    assert str(tmp_path) in message or ".snapshot" in message or what == "client"


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    """A file in place of a folder, and a folder without write permission, are named with the cure."""
    (tmp_path / "file").write_text("")
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(1)
        storage = mp.checkpoint_storage(str(tmp_path / "file"))
        with pytest.raises(errors.StorageAccessError, match="Move the file") as caught:
            backend.snapshot(1, storage).result()
        assert caught.value.path.startswith(str(tmp_path / "file"))
        if os.geteuid():
            (tmp_path / "closed").mkdir(mode=0o555)
            storage = mp.checkpoint_storage(str(tmp_path / "closed"))
            with pytest.raises(errors.StorageAccessError, match="Give this user the right"):
                backend.snapshot(2, storage).result()
