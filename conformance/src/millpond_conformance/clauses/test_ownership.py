"""Clauses: ownership of a directory and a snapshot if several backends want to use them."""

import os
import pickle
import random
import shutil
import signal
import subprocess
from pathlib import Path

import millpond as mp
import pytest
from millpond import errors
from millpond.plugins import get_registry
from millpond.spi import Capability

from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.opening import open_at
from millpond_conformance.processes import child_command, in_a_child

pytestmark = pytest.mark.slow

TOTAL = mp.ValueStateDescriptor("total", int)


def put(backend, **values):
    """Set the total of some keys."""
    state = backend.get_partitioned_state(TOTAL)
    for key, value in values.items():
        backend.set_current_key(key)
        state.update(value)


def totals(backend):
    """Return the totals of all keys."""
    state = backend.get_partitioned_state(TOTAL)
    found = {}
    for key in list(backend.keys("total")):
        backend.set_current_key(key)
        found[key] = state.value()
    return found


SECOND = """
import sys
from pathlib import Path
from millpond import errors
from millpond_conformance.opening import open_at
try:
    open_at(sys.argv[1], Path(sys.argv[2])).close()
except errors.DirectoryInUseError:
    print("refused")
"""


@pytest.mark.clause("F1")
def test_a_directory_belongs_to_one_open_backend(backend_name, tmp_path):
    """The directory of an open backend cannot be opened again, in this process or another.

    With the capability in-process-copy another backend can open it, and starts empty. In both cases
    the open backend still works. After it is closed, another one can open its directory.
    """
    shared = (
        Capability.IN_PROCESS_COPY
        in get_registry().load(get_registry().resolve(backend_name)).capabilities
    )
    with open_at(backend_name, tmp_path) as first:
        put(first, a=1)
        first.flush("v1")
        if shared:
            with open_at(backend_name, tmp_path) as second:
                assert totals(second) == {}
        else:
            with pytest.raises(errors.DirectoryInUseError, match=str(tmp_path)):
                open_at(backend_name, tmp_path)
        done = in_a_child(SECOND, backend_name, str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == ("" if shared else "refused")
        put(first, b=2)
        first.flush("v2")
        assert totals(first) == {"a": 1, "b": 2}
    with open_at(backend_name, tmp_path) as again:
        assert totals(again) == {}


@pytest.mark.clause("F2")
def test_a_snapshot_may_be_restored_twice(open_backend: BackendOpener, storage):
    """Two backends restored from one snapshot share no state, and none deletes the snapshot."""
    origin = open_backend()
    put(origin, a=1, b=2)
    handle = origin.snapshot(1, storage).result().handle
    origin.notify_checkpoint_complete(1)
    config = mp.Config({"checkpoint.retained": 1})
    twins = [open_backend(restore=[handle], config=config) for _ in range(2)]
    later = []
    for twin, key in zip(twins, ("c", "d"), strict=True):
        for number in (2, 3):
            put(twin, **{key: number})
            later.append(twin.snapshot(number, storage).result().handle)
            twin.notify_checkpoint_complete(number)
        twin.notify_checkpoint_subsumed(2)
    assert totals(twins[0]) == {"a": 1, "b": 2, "c": 3}
    assert totals(twins[1]) == {"a": 1, "b": 2, "d": 3}
    assert totals(open_backend(restore=[handle])) == {"a": 1, "b": 2}
    assert totals(open_backend(restore=[later[1]])) == {"a": 1, "b": 2, "c": 3}
    assert totals(open_backend(restore=[later[3]])) == {"a": 1, "b": 2, "d": 3}


LATE = """
import os, pickle, signal, sys
import millpond as mp
from millpond_conformance.clauses.test_ownership import put
name, directory, handle = sys.argv[1:]
with open(handle, "rb") as file:
    known = pickle.load(file)
with mp.open_keyed_backend(name, key_type=str, directory=directory, restore=[known]) as backend:
    backend.notify_checkpoint_complete(1)
    put(backend, late=1)
    os.kill(os.getpid(), signal.SIGSTOP)
    backend.snapshot(2, known.storage).result()
    backend.notify_checkpoint_aborted(2)
    put(backend, late=2)
    backend.snapshot(3, known.storage).result()
    backend.notify_checkpoint_complete(3)
    backend.notify_checkpoint_subsumed(2)
"""


@pytest.mark.clause("F3")
def test_a_writer_that_wakes_up_late_spoils_nothing(open_backend, backend_name, tmp_path):
    """A process that was stopped and replaced by a second process cannot do harm if it goes on.

    The snapshots of the second process remain unchanged.
    """
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    origin = open_backend()
    put(origin, a=1)
    handle = origin.snapshot(1, storage).result().handle
    (tmp_path / "handle").write_bytes(pickle.dumps(handle))
    arguments = [backend_name, str(tmp_path / "late"), str(tmp_path / "handle")]
    command, environment = child_command(LATE, *arguments)
    with subprocess.Popen(  # noqa: S603 - the kit's own code
        command, env=environment, stderr=subprocess.PIPE, text=True
    ) as late:
        _, status = os.waitpid(late.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        heir = open_backend(restore=[handle])
        put(heir, heir=1)
        handles = [heir.snapshot(2, storage).result().handle]
        heir.notify_checkpoint_complete(2)
        os.kill(late.pid, signal.SIGCONT)
        _, complaint = late.communicate(timeout=60)
    assert late.returncode == 0, complaint
    put(heir, heir=2)
    handles.append(heir.snapshot(3, storage).result().handle)
    for number, one in enumerate(handles, 1):
        assert totals(open_backend(restore=[one])) == {"a": 1, "heir": number}


FORKED = """
import os, sys
from pathlib import Path
import millpond as mp
from millpond import errors
from millpond.plugins import get_registry
from millpond_conformance.clauses.test_ownership import put, totals

name, folder = sys.argv[1], Path(sys.argv[2])

def opened(place):
    return mp.open_keyed_backend(name, key_type=str, directory=folder / place)

def in_a_fork(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0

def use_own():
    with opened("child") as backend:
        put(backend, a=1)
        backend.flush()
        assert totals(backend) == {"a": 1}

def use_inherited():
    for use in (lambda: put(backend, a=2), backend.flush, lambda: backend.snapshot(1, storage)):
        try:
            use()
        except errors.BackendClosedError:
            continue
        raise SystemExit("the parent's backend can be used")
    backend.close()

get_registry().load(get_registry().resolve(name))
in_a_fork(use_own)
storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
backend = opened("parent")
put(backend, a=1)
backend.flush()
in_a_fork(use_inherited)
put(backend, b=2)
handle = backend.snapshot(1, storage).result().handle
backend.close()
place = folder / "again"
with mp.open_keyed_backend(name, key_type=str, directory=place, restore=[handle]) as again:
    assert totals(again) == {"a": 1, "b": 2}
"""


@pytest.mark.clause("F4")
def test_a_forked_child_has_no_part_in_the_backend(backend_name, tmp_path):
    """A forked child can open a backend of its own.

    A backend that the child inherits is closed in the child, and still works in the parent.
    """
    done = in_a_child(FORKED, backend_name, str(tmp_path), timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.clause("F5")
def test_a_spawned_process_gets_what_it_needs_by_pickle(backend_name):
    """A pickled and unpickled factory has the same type, name and capabilities."""
    factory = get_registry().load(get_registry().resolve(backend_name))
    again = pickle.loads(pickle.dumps(factory))  # noqa: S301 - made in the line itself
    assert type(again) is type(factory)
    assert (again.name, again.capabilities) == (factory.name, factory.capabilities)


def damage(path: Path, how: str, other: Path, rng: random.Random) -> None:
    """Damage the file `path` in the way `how`; for a swap, `other` is the file to replace it."""
    data = bytearray(path.read_bytes())
    if how == "swapped":
        data = bytearray(other.read_bytes())
    elif how == "truncated":
        del data[rng.randrange(len(data)) :]
    elif how == "zeroed":
        start = rng.randrange(len(data))
        data[start : start + 4096] = bytes(len(data[start : start + 4096]))
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def closed_copy(backend: str, directory: Path, first: int) -> list[Path]:
    """Write values from `first` on, flush them as v1, and close the backend.

    Return the backend's non-empty files.
    """
    shutil.rmtree(directory, ignore_errors=True)
    with open_at(backend, directory) as opened:
        put(opened, **{f"k{number}": first + number for number in range(200)})
        opened.flush("v1")
    found = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return [path for path in found if path.stat().st_size]


DAMAGED = """
import random, sys
from pathlib import Path
from millpond import errors
from millpond_conformance.opening import open_at
from millpond_conformance.clauses.test_ownership import closed_copy, damage, totals
name, folder = sys.argv[1], Path(sys.argv[2])
right = {f"k{number}": number for number in range(200)}
twins = closed_copy(name, folder / "twin", 1000)
for how in ("truncated", "zeroed", "flipped", "swapped"):
    for number in range(max(1, min(6, len(twins)))):
        files = closed_copy(name, folder / "copy", 0)
        if files:
            at = number % len(files)
            damage(files[at], how, twins[min(at, len(twins) - 1)], random.Random(number))
        print(how, files[at].name if files else "nothing", end=": ", flush=True)
        try:
            with open_at(name, folder / "copy", {"v1"}) as again:
                assert totals(again) == ({} if again.version is None else right)
        except errors.MillpondError as error:
            print(error, end="")
        print("fine", flush=True)
"""


@pytest.mark.clause("F6")
def test_a_damaged_local_copy_is_never_used(backend_name, tmp_path):
    """A backend reads no wrong value from a truncated, zeroed, bit-flipped or swapped file.

    The file is damaged while the backend is closed. The backend opens empty, or with the stored
    state, or raises one of Millpond's errors. It does not kill the process.
    """
    done = in_a_child(DAMAGED, backend_name, str(tmp_path))
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
