"""If the operating system refuses a store's operation, the error names directory and cure."""

import json

import lmdb
import millpond as mp
import pytest
from millpond import errors
from millpond_conformance.processes import in_a_child
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore

from tests.crash.crash_faults import fill_up, small_disk

pytestmark = pytest.mark.slow

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
    if kind == "large values":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        limit(resource.RLIMIT_AS, used + (200 << 20))
        with opened("x") as store:
            state, held = store.get_partitioned_state(DATA), []
            for number in range(20):
                store.set_current_key(f"k{number}")
                state.update(os.urandom(10 << 20))
                store.flush()
                held.append(state.value())
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
    """Under a real limit the process continues, and the error names directory and cure."""
    tmp_path.chmod(0o755)
    done = in_a_child(LIMITED, kind, backend, str(tmp_path))
    assert done.returncode == 0, done.stderr
    found, directory, message = json.loads(done.stdout)
    assert found == name, message
    assert directory.startswith(str(tmp_path / "x"))
    assert directory in message
    assert cure in message


@pytest.mark.parametrize("kind", ["address space later", "large values"])
def test_rocksdb_that_outgrows_its_memory_limit_lives(tmp_path, kind):
    """If a memory limit is reached later, an error is raised before RocksDB would end the process."""
    done = in_a_child(LIMITED, kind, "rocksdb", str(tmp_path))
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
    """A write that does not fit on a full disk changes nothing; with space, the repeated write is complete."""
    done = in_a_child(RETRIED, str(tmp_path / "lmdb"))
    assert done.stdout.strip() == "whole", done.stderr


OPENED = """
import sys
import millpond as mp
from millpond import errors
try:
    mp.open_keyed_backend(sys.argv[1], key_type=str, directory=sys.argv[2] + "/x")
except errors.StoreFullError as error:
    print(error.directory)
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("left", [0, 4096, 16384])
def test_a_store_is_not_opened_on_a_full_disk(tmp_path, backend, left):
    """On a disk without space for its files a store raises an error; the process continues."""
    with small_disk(tmp_path / "disk"):
        if not (tmp_path / "disk").is_mount():
            pytest.skip("mounting is not allowed here")
        fill_up(tmp_path / "disk")
        with (tmp_path / "disk" / "ballast").open("r+b") as ballast:
            ballast.truncate((tmp_path / "disk" / "ballast").stat().st_size - left)
        done = in_a_child(OPENED, backend, str(tmp_path / "disk"))
    assert done.returncode == 0, done.stderr
    assert left or done.stdout.startswith(str(tmp_path / "disk")), done.stderr


@pytest.mark.parametrize("readers", [2, 5, 126, 300])
def test_the_lock_file_is_as_large_as_lmdb_makes_it(tmp_path, readers):
    """The lock file that Millpond allocates in advance has LMDB's size, with all reader slots."""
    store = LmdbStore(tmp_path / "ours", LmdbOptions(max_readers=readers))
    assert store.metrics()["reader_slots"] == readers
    with lmdb.open(str(tmp_path / "plain"), max_readers=readers):
        sizes = {(tmp_path / name / "lock.mdb").stat().st_size for name in ("ours", "plain")}
    store.close()
    assert len(sizes) == 1


CLOSED = """
import os, resource, sys
import millpond as mp
from millpond import errors
DATA = mp.ValueStateDescriptor("data", bytes)
kept = []
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
try:
    with mp.open_keyed_backend("rocksdb", key_type=str, directory=sys.argv[1]) as backend:
        kept.append(backend)
        state = backend.get_partitioned_state(DATA)
        for number in range(3000):
            backend.set_current_key(str(number))
            state.update(os.urandom(300))
        backend.flush()
except errors.StoreFullError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    mp.open_keyed_backend("rocksdb", key_type=str, directory=sys.argv[1]).close()
    print("opened again")
"""


def test_rocksdb_that_could_not_be_closed_frees_its_directory(tmp_path):
    """If RocksDB cannot be closed on a full disk, the same process can reopen the directory with space."""
    done = in_a_child(CLOSED, str(tmp_path))
    assert done.stdout.strip() == "opened again", done.stderr


RECOVERED = """
import os, resource, sys
import millpond as mp
from millpond import errors
backend, strategy, folder = sys.argv[1:]
options = {"state.snapshot.strategy": strategy, "buffer.max-bytes": "1mb"}
if backend == "rocksdb":
    options["backend.rocksdb.write-buffer-size"] = "256kb"
config = mp.Config(options)
storage = mp.checkpoint_storage(f"{folder}/checkpoints")
STATES = [mp.ValueStateDescriptor(f"s{number}", bytes) for number in range(10)]
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

def opened(place, *handles):
    return mp.open_keyed_backend(
        backend, key_type=str, directory=f"{folder}/{place}", config=config, restore=handles
    )

def fill(store, count):
    states = [store.get_partitioned_state(each) for each in STATES]
    for number in range(count):
        store.set_current_key(f"k{number}")
        for state in states:
            state.update(os.urandom(60))

def contents(store):
    found = {}
    for each in STATES:
        state = store.get_partitioned_state(each)
        for key in list(store.keys(each.name)):
            store.set_current_key(key)
            found[each.name, key] = state.value()
    return found

with opened("first") as store:
    fill(store, 50)
    handle = store.snapshot(1, storage).result().handle
    before = contents(store)
failed = 0
for limit in (16, 20_000, 60_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with opened(f"x{limit}", handle) as store:
            fill(store, 600)
            store.flush()
            store.snapshot(2, storage).result()
    except errors.MillpondError:
        failed += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    with opened(f"x{limit}", handle) as store:
        assert contents(store) == before
        fill(store, 600)
        after = store.snapshot(3, storage).result().handle
        wanted = contents(store)
    with opened("other", after) as store:
        assert contents(store) == wanted
print(failed)
"""


@pytest.mark.parametrize(
    ("backend", "strategy"),
    [("heap", "full"), ("lmdb", "changelog"), ("rocksdb", "full"), ("rocksdb", "incremental")],
)
def test_with_room_again_the_same_process_goes_on(tmp_path, backend, strategy):
    """Wherever writes failed, the next backend in the directory restores the snapshot and works."""
    done = in_a_child(RECOVERED, backend, strategy, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


COMMITTED = """
import resource, sys
from pathlib import Path
from millpond import errors
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
try:
    LmdbStore(Path(sys.argv[1]), LmdbOptions())
except errors.StoreFullError as error:
    print(error)
"""


def test_a_write_cut_short_at_opening_is_a_full_disk(tmp_path):
    """An "input/output error" of LMDB at a short write is reported as a full disk, not as damage."""
    done = in_a_child(COMMITTED, str(tmp_path / "lmdb"))
    assert "the disk is full" in done.stdout, done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["x", "x/y"])
def test_a_file_in_a_directorys_place(tmp_path, backend, place):
    """A file in place of the directory, a parent or the store's own directory is named."""
    (tmp_path / "x").write_text("")
    with pytest.raises(errors.StoreAccessError, match="Move the file that has its name") as caught:
        mp.open_keyed_backend(backend, key_type=str, directory=tmp_path / place)
    assert caught.value.directory == str(tmp_path / place)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / backend).write_text("")
    with pytest.raises(
        errors.StoreAccessError, match=f"y/{backend}.*Move the file that has its name"
    ):
        mp.open_keyed_backend(backend, key_type=str, directory=tmp_path / "y")


def test_too_many_states_on_lmdb(tmp_path):
    """One state too many on LMDB is refused with its name and the option; all others work."""
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
