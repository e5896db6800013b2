"""Clauses: files, threads and bytes that a backend uses, and restores in other processes."""

import json
import pickle
import threading
from pathlib import Path

import millpond as mp
import pytest
from millpond.errors import MillpondError
from millpond.plugins import get_registry
from millpond.spi import Capability

from millpond_conformance.call_counts import count_calls
from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.opening import open_at
from millpond_conformance.processes import fresh_processes, in_a_child
from millpond_conformance.refused import opened_on_full_disks

pytestmark = pytest.mark.slow

TOTAL = mp.ValueStateDescriptor("total", int)
PEOPLE = 2000


def open_files() -> int:
    """Return the number of file descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def fill(backend, count: int) -> None:
    """Set the total of `count` keys."""
    state = backend.get_partitioned_state(TOTAL)
    for number in range(count):
        backend.set_current_key(f"k{number}")
        state.update(number)


@pytest.mark.clause("R1")
def test_opening_and_closing_leaks_nothing(backend_name, tmp_path, storage):
    """Opening, using and closing many backends leaves no additional files or threads open."""

    def use(number: int) -> None:
        with mp.open_keyed_backend(
            backend_name, key_type=str, directory=tmp_path / str(number)
        ) as backend:
            fill(backend, 20)
            backend.snapshot(1, storage).result()

    for number in range(3):
        use(number)
    files, threads = open_files(), threading.active_count()
    for number in range(3, 20):
        use(number)
    assert open_files() <= files
    assert threading.active_count() <= threads


@pytest.mark.clause("R13")
def test_an_opening_that_fails(backend_name, tmp_path):
    """A failed opening leaves no file or thread open, and the directory can be opened again.

    This applies to missing snapshot files and to a full disk, even if the error is still
    referenced.
    """
    folder, place = tmp_path / "snapshots", tmp_path / "second"
    storage = mp.checkpoint_storage(folder.as_uri())
    with mp.open_keyed_backend(backend_name, key_type=str, directory=tmp_path / "first") as backend:
        fill(backend, 20)
        handle = backend.snapshot(1, storage).result().handle
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()

    def fail() -> None:
        with pytest.raises(MillpondError):
            mp.open_keyed_backend(backend_name, key_type=str, directory=place, restore=[handle])

    for _ in range(3):
        fail()
    files, threads = open_files(), threading.active_count()
    for _ in range(10):
        fail()
    assert open_files() <= files
    assert threading.active_count() <= threads
    with mp.open_keyed_backend(backend_name, key_type=str, directory=place) as backend:
        assert backend.num_state_entries() == 0
    full = str(tmp_path / "full")
    assert fresh_processes(backend_name).call(opened_on_full_disks, backend_name, full) == 0


@pytest.mark.clause("R2")
def test_a_snapshot_costs_what_has_changed(open_backend: BackendOpener, storage):
    """After one of 2,000 entries has changed, the next snapshot contains only that row."""
    backend = open_backend()
    fill(backend, PEOPLE)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    backend.set_current_key("k7")
    backend.get_partitioned_state(TOTAL).update(-1)
    result = backend.snapshot(2, storage).result()
    assert result.rows_written == 1
    assert result.bytes_written < 4096


WITHOUT_METADATA = """
import importlib.metadata
importlib.metadata.entry_points = lambda **wanted: importlib.metadata.EntryPoints(())
"""
CHILD = """
import json, pickle, sys
import millpond as mp
name, directory, handle = sys.argv[1:]
with open(handle, "rb") as file:
    known = pickle.load(file)
with mp.open_keyed_backend(name, key_type=str, directory=directory, restore=[known]) as backend:
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("total", int))
    values = []
    for key in ("k0", "k7", "k19", "nobody"):
        backend.set_current_key(key)
        values.append(state.value())
print(json.dumps(values))
"""


@pytest.mark.clause("R3")
@pytest.mark.parametrize("by", ["name", "target"])
def test_a_handle_is_restored_in_another_process(open_backend, backend_name, tmp_path, by):
    """Another process can restore a pickled handle with the backend of the same name.

    If that process has no entry points, for instance because modules were shipped in a zip file, it
    finds the backend by `module:attr`.
    """
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    backend = open_backend()
    fill(backend, 20)
    handle = backend.snapshot(1, storage).result().handle
    (tmp_path / "handle").write_bytes(pickle.dumps(handle))
    resolution = get_registry().resolve(backend_name)
    name = backend_name if by == "name" else resolution.target
    if by == "target" and ":" not in name:
        factory = type(get_registry().load(resolution))
        name = f"{factory.__module__}:{factory.__qualname__}"
    code = WITHOUT_METADATA * (by == "target") + CHILD
    done = in_a_child(code, name, str(tmp_path / "child"), str(tmp_path / "handle"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, 7, 19, None]


@pytest.mark.clause("R5")
def test_a_local_copy_is_what_is_declared(backend_name, tmp_path):
    """With the capability local-copy, a closed backend has its version and values when reopened.

    Without the capability it is empty when reopened.
    """
    declared = get_registry().load(get_registry().resolve(backend_name)).capabilities
    with open_at(backend_name, tmp_path, ()) as backend:
        fill(backend, 20)
        backend.flush()
        backend.flush("v1")  # this flush has no changes: it only names the version
    with open_at(backend_name, tmp_path, ("v1",)) as again:
        again.set_current_key("k7")
        found = again.get_partitioned_state(TOTAL).value()
        kept = Capability.LOCAL_COPY in declared
        assert (again.version, found) == (("v1", 7) if kept else (None, None))
    with open_at(backend_name, tmp_path, ("v2",)) as other:
        assert other.version is None
        assert other.num_state_entries() == 0


TIDY = """
import os, sys
from pathlib import Path
import millpond as mp
from millpond_conformance.clauses.test_resources import fill
name, folder = sys.argv[1], Path(sys.argv[2])
os.chdir(os.environ["HOME"])
storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
with mp.open_keyed_backend(name, key_type=str, directory=folder / "first") as backend:
    fill(backend, 50)
    handles = [backend.snapshot(1, storage).result().handle]
    backend.notify_checkpoint_complete(1)
    fill(backend, 60)
    handles.append(backend.savepoint(2, storage).result().handle)
for number, handle in enumerate(handles):
    place = folder / f"again-{number}"
    with mp.open_keyed_backend(name, key_type=str, directory=place, restore=[handle]) as backend:
        fill(backend, 5)
"""


@pytest.mark.clause("R6")
def test_nothing_is_left_elsewhere(backend_name, tmp_path):
    """A closed backend leaves no file outside of its directory and the storage.

    This applies to the user's directories, the directory for temporary files and the working
    directory.
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    places = {name: str(elsewhere) for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME")}
    done = in_a_child(TIDY, backend_name, str(tmp_path / "work"), variables=places)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in elsewhere.rglob("*") if path.is_file()] == []


@pytest.mark.clause("R8", provisional=True)
def test_an_access_costs_the_same_in_a_large_store(open_backend: BackendOpener):
    """The cost of a read, write, removal or iteration does not grow with the number of keys.

    The cost is the number of calls of Python and C functions. With 2,000 keys it is at most twice
    the cost with 20 keys, plus 10.
    """
    scores = mp.MapStateDescriptor("scores", str, int)

    def steps_among(others: int) -> list[int]:
        backend = open_backend()
        total = backend.get_partitioned_state(TOTAL)
        score = backend.get_partitioned_state(scores)
        for number in range(others):
            backend.set_current_key(f"k{number}")
            total.update(number)
            score.put_all({"a": 1, "b": 2})
        backend.flush()
        backend.set_current_key("k7")
        works = (total.value, lambda: dict(score.items()), lambda: total.update(1), score.clear)
        return [count_calls(work) for work in works]

    for few, many in zip(steps_among(20), steps_among(PEOPLE), strict=True):
        assert many <= 2 * few + 10
