"""What the operating system refuses a store: errors that name the place and the cure."""

import json

import millpond as mp
import pytest
from millpond import errors
from millpond_conformance.processes import in_a_child

BACKENDS = ["lmdb", "rocksdb"]
FULL = "Raise the memory or disk limit"

LIMITED = """
import json, os, resource, sys
from pathlib import Path
import millpond as mp
from millpond import errors
kind, backend, folder = sys.argv[1:]
DATA = mp.ValueStateDescriptor("data", bytes)

def opened(place):
    return mp.open_keyed_backend(backend, key_type=str, directory=Path(folder) / place)

def fill(store, count):
    state = store.get_partitioned_state(DATA)
    for number in range(count):
        store.set_current_key(f"k{number}")
        state.update(os.urandom(500))
    store.flush()

def limit(what, value):
    resource.setrlimit(what, (value, resource.getrlimit(what)[1]))

opened("first").close()
try:
    if kind == "file size":
        limit(resource.RLIMIT_FSIZE, 256 << 10)
        with opened("x") as store:
            fill(store, 3000)
    if kind == "open files":
        limit(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")))
        opened("x")
    if kind == "address space":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        limit(resource.RLIMIT_AS, used + (16 << 20))
        opened("x")
    if kind == "address space later":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        limit(resource.RLIMIT_AS, used + (136 << 20))
        with opened("x") as store:
            for _ in range(100):
                fill(store, 10_000)
    if kind == "rights":
        os.mkdir(Path(folder) / "x", 0o555)
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        opened("x/y")
except errors.MillpondError as error:
    print(json.dumps([type(error).__name__, getattr(error, "directory", ""), str(error)]))
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("kind", "name", "cure"),
    [
        ("file size", "StoreFullError", FULL),
        ("open files", "StoreAccessError", "Raise the limit of open files"),
        ("address space", "StoreFullError", FULL),
        ("rights", "StoreAccessError", "Give this user the right"),
    ],
)
def test_limits_are_told(tmp_path, backend, kind, name, cure):
    """Under a real limit a process lives on with an error that names directory and cure."""
    tmp_path.chmod(0o755)
    done = in_a_child(LIMITED, kind, backend, str(tmp_path))
    assert done.returncode == 0, done.stderr
    found, directory, message = json.loads(done.stdout)
    assert found == name, message
    assert directory.startswith(str(tmp_path / "x"))
    assert directory in message
    assert cure in message


def test_rocksdb_that_outgrows_its_memory_limit_lives(tmp_path):
    """A limit that is reached later is told before RocksDB would end the process."""
    done = in_a_child(LIMITED, "address space later", "rocksdb", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] == "StoreFullError"


RETRIED = """
import os, resource, sys
from pathlib import Path
from millpond import errors
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore
store = LmdbStore(Path(sys.argv[1]), LmdbOptions())
store.create_family("f")
store.write({"f": [(b"a", b"1")]})
rows = [(b"b%05d" % n, os.urandom(500)) for n in range(3000)]
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, hard))
try:
    store.write({"f": rows})
except errors.StoreFullError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert dict(store.scan("f", b"", None)) == {b"a": b"1"}
    store.write({"f": rows})
    assert dict(store.scan("f", b"", None)) == {b"a": b"1", **dict(rows)}
    print("whole")
"""


def test_lmdb_on_a_full_disk_goes_on_when_there_is_room(tmp_path):
    """The write that did not fit left nothing behind; tried again with room it is whole."""
    done = in_a_child(RETRIED, str(tmp_path / "lmdb"))
    assert done.stdout.strip() == "whole", done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["x", "x/y"])
def test_a_file_in_a_directorys_place(tmp_path, backend, place):
    """A file where the directory, one above it, or the store's own should be, is named."""
    (tmp_path / "x").write_text("")
    with pytest.raises(errors.StoreAccessError, match="Move what stands in its place") as caught:
        mp.open_keyed_backend(backend, key_type=str, directory=tmp_path / place)
    assert caught.value.directory == str(tmp_path / place)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / backend).write_text("")
    with pytest.raises(errors.StoreAccessError, match=f"y/{backend}.*Move what stands"):
        mp.open_keyed_backend(backend, key_type=str, directory=tmp_path / "y")


def test_too_many_states_on_lmdb(tmp_path):
    """The state that does not fit is named, with the option; all others go on."""
    config = mp.Config({"backend.lmdb.max-states": 3})
    with mp.open_keyed_backend("lmdb", key_type=str, directory=tmp_path, config=config) as backend:
        backend.set_current_key("k")
        names = ("a", "b", "c")
        states = [backend.get_partitioned_state(mp.ValueStateDescriptor(n, int)) for n in names]
        for state in states:
            state.update(1)
        for _ in range(2):
            with pytest.raises(errors.TooManyStatesError, match=r"'d'.*backend.lmdb.max-states"):
                backend.get_partitioned_state(mp.ValueStateDescriptor("d", int))
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:")).result().handle
        assert [state.value() for state in states] == [1, 1, 1]
        assert [meta.name for meta in handle.states] == ["a", "b", "c"]
