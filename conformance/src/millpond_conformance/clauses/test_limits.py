"""Clauses: errors at limits of the machine, and bounds for a backend's disk space and time."""

import random
import time

import millpond as mp
import pytest

from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.opening import open_at
from millpond_conformance.processes import in_a_child

TOTAL = mp.ValueStateDescriptor("total", int)
BLOB = mp.ValueStateDescriptor("blob", bytes)
ITEMS = mp.ListStateDescriptor("items", int)

FULL = """
import random, resource, sys
from pathlib import Path
from millpond.errors import MillpondError, StoreFullError
from millpond_conformance.clauses.test_limits import BLOB, ITEMS
from millpond_conformance.opening import open_at
name, folder = sys.argv[1], Path(sys.argv[2])
blobs = [random.Random(number).randbytes(500) for number in range(3000)]

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

def shown(backend):
    state, items = backend.get_partitioned_state(BLOB), backend.get_partitioned_state(ITEMS)
    found = []
    for number in range(len(blobs)):
        backend.set_current_key(f"k{number}")
        found.append((state.value(), items.get()))
    return found

def appended(backend, element):
    for number in range(len(blobs)):
        backend.set_current_key(f"k{number}")
        backend.get_partitioned_state(ITEMS).add(element)

def filled(backend):
    state = backend.get_partitioned_state(BLOB)
    for number, blob in enumerate(blobs):
        backend.set_current_key(f"k{number}")
        state.update(blob)
    appended(backend, 2)

soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
whole = [(blob, [1, 2]) for blob in blobs]
backend = open_at(name, folder)
appended(backend, 1)
backend.flush("v0")
try:
    filled(backend)
    limit(256 << 10)
    backend.flush("v1")
except StoreFullError as error:
    print(f"refused: {error}")
else:
    print("taken")
    assert shown(backend) == whole
limit(soft)
try:
    backend.flush("v1")  # there is room again
    assert shown(backend) == whole
except MillpondError as error:
    print(f"refused again: {error}")
try:
    backend.close()
except MillpondError as error:
    print(f"refused: {error}")
with open_at(name, folder, {"v1"}) as again:
    assert shown(again) == ([(None, [])] * len(blobs) if again.version is None else whole)
print("fine")
"""


@pytest.mark.clause("D6")
def test_a_disk_that_is_full(backend_name, tmp_path):
    """If the system refuses the writes of a flush, the flush raises StoreFullError.

    The flush may be repeated when there is free space. It then either stores all changes, with each
    appended list element once, or raises an error. Afterwards the directory opens with the complete
    version, or empty.
    """
    done = in_a_child(FULL, backend_name, str(tmp_path))
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert done.stdout.endswith("fine\n")


REFUSED = """
import os, resource, sys
from pathlib import Path
from millpond.errors import MillpondError
from millpond_conformance.clauses.test_ownership import put, totals
from millpond_conformance.opening import open_at
name, folder = sys.argv[1], Path(sys.argv[2])

def use(place):
    with open_at(name, place) as backend:
        put(backend, a=1)
        backend.flush("v1")
        assert totals(backend) == {"a": 1}

def refused_or_used(place):
    try:
        use(place)
    except MillpondError as error:
        print(f"refused: {error}")

use(folder / "first")
(folder / "file").write_text("")
refused_or_used(folder / "file" / "second")
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for more in range(8):
    taken = len(os.listdir("/proc/self/fd")) - 1  # without the descriptor that lists them
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + more, hard))
    refused_or_used(folder / f"with {more}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    use(folder / f"with {more}")
"""


@pytest.mark.clause("D7")
def test_an_opening_that_the_system_refuses(backend_name, tmp_path):
    """If the system refuses a directory or file, opening a backend raises one of Millpond's errors.

    With enough file descriptors opening works, also after it was refused before.
    """
    done = in_a_child(REFUSED, backend_name, str(tmp_path))
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


ROUNDS, ENTRIES, SIZE, MOST = 24, 100, 20_000, 32 << 20


def size_of(folder):
    """Return the number of bytes that the files of a directory take on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@pytest.mark.clause("R14")
@pytest.mark.parametrize("how", ["overwritten", "replaced"])
def test_a_directory_does_not_grow_without_end(backend_name, tmp_path, how):
    """The directory of a state of 2 MiB remains below 32 MiB, even if entries are often written.

    This applies if entries are overwritten, and if new entries replace old ones. Between the
    rounds, the backend is closed and opened again.
    """
    rng = random.Random(1)  # noqa: S311 - data, no secret
    for number in range(ROUNDS):
        with open_at(backend_name, tmp_path, [f"v{number - 1}"]) as backend:
            state = backend.get_partitioned_state(BLOB)
            for entry in range(ENTRIES):
                if how == "replaced" and backend.version is not None:
                    backend.set_current_key(f"{number - 1} {entry}")
                    state.clear()
                backend.set_current_key(f"{number if how == 'replaced' else 0} {entry}")
                state.update(rng.randbytes(SIZE))
            backend.flush(f"v{number}")
            assert size_of(tmp_path) < MOST
            assert backend.num_state_entries() == ENTRIES
        assert size_of(tmp_path) < MOST


FEW, MANY, TIMES, AGAIN = 1000, 20_000, 300, 5


def filled(open_backend, count):
    """Return a backend, its states and its timers; `count` keys have a value, a map and a timer."""
    backend = open_backend()
    total = backend.get_partitioned_state(TOTAL)
    scores = backend.get_partitioned_state(mp.MapStateDescriptor("scores", str, int))
    timers = backend.timer_queue("event")
    for number in range(count):
        backend.set_current_key(f"k{number}")
        total.update(number)
        scores.put_all({"a": 1, "b": 2})
        timers.register(number, mp.VOID_NAMESPACE)
    backend.flush()
    return backend, total, scores, timers


def works_of(open_backend, count):
    """Return hundreds of accesses to a backend of `count` keys as functions, by kind of access."""
    backend, total, scores, timers = filled(open_backend, count)
    keys = [f"k{random.Random(n).randrange(FEW)}" for n in range(TIMES)]  # noqa: S311 - data

    def on_all(access, count=TIMES):
        def work():
            for key in keys[:count]:
                backend.set_current_key(key)
                access()

        return work

    def changed():
        total.update(7)
        scores.put("c", 3)
        scores.remove("c")

    def timed():
        timers.register(-5, mp.VOID_NAMESPACE)
        assert timers.earliest() == -5
        timers.delete(-5, mp.VOID_NAMESPACE)

    def flushed():
        changed()
        backend.flush()

    return {
        "read": on_all(lambda: (total.value(), scores.get("a"))),
        "iterate": on_all(lambda: dict(scores.items())),
        "change": on_all(changed),
        "timer": on_all(timed),
        "flush": on_all(flushed, TIMES // 5),
    }


def seconds_of(work):
    """Return the processor time in seconds that a call of `work` takes in this thread."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


@pytest.mark.clause("R15")
def test_an_access_takes_no_longer_in_a_large_store(open_backend: BackendOpener):
    """The processor time of an access does not grow with the number of keys.

    Hundreds of accesses may take four times as long with 20,000 keys as with 1,000, plus 20 ms; the
    fastest of five measurements counts. This applies to reads, iterations, changes, timers and
    flushes.
    """
    few, many = works_of(open_backend, FEW), works_of(open_backend, MANY)
    for name in few:
        pairs = [(seconds_of(few[name]), seconds_of(many[name])) for _ in range(AGAIN)]
        small, large = (min(each) for each in zip(*pairs, strict=True))
        assert large <= 4 * small + 0.02, f"{name}: {small:.4f} s with few, {large:.4f} s with many"
