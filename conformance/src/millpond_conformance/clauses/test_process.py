"""Clauses: settings, threads and working directory of a backend's process."""

import decimal
import gc
import locale
import logging
import os
import pickle
import random
import resource
import signal
import socket
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime

import millpond as mp
import pytest

from millpond_conformance.comparing import assert_same, by_key
from millpond_conformance.opening import open_at
from millpond_conformance.processes import in_a_child

TOTAL = mp.ValueStateDescriptor("total", int)
ITEMS = mp.ListStateDescriptor("items", int)


def settings():
    """Return the process-wide settings of Python and the system, by name."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "working directory": os.getcwd(),  # noqa: PTH109 - with its symbolic links
        "umask": umask,
        "locale": locale.setlocale(locale.LC_ALL),
        "environment": dict(os.environ),
        "sys.path": list(sys.path),
        "signal handlers": {n: signal.getsignal(n) for n in signal.valid_signals()},
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "hooks": (sys.excepthook, sys.unraisablehook),
        "decimal context": repr(decimal.getcontext()),
        "random numbers": random.getstate(),
        "garbage collection": (gc.isenabled(), gc.get_threshold()),
        "warnings": list(warnings.filters),
        "sockets": socket.getdefaulttimeout(),
        "time zone": time.tzname,
        "limits": (
            resource.getrlimit(resource.RLIMIT_NOFILE),
            resource.getrlimit(resource.RLIMIT_AS),
        ),
        "logging": (logging.root.level, list(logging.root.handlers)),
    }


def changed_settings(backend_name, folder):
    """Open, use and close a backend; return the settings that changed, also temporarily."""
    before = settings()
    changed: set[str] = set()

    def compare():
        changed.update(name for name, found in settings().items() if found != before[name])

    storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
    with mp.open_keyed_backend(backend_name, key_type=str, directory=folder / "used") as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(TOTAL).update(1)
        backend.snapshot(1, storage).result()
        compare()
    compare()
    return sorted(changed)


FIRST = """
import sys
from pathlib import Path
from millpond.plugins import get_registry
from millpond_conformance.clauses.test_process import changed_settings
registry = get_registry()
registry.load(registry.resolve(sys.argv[1]))
changed = changed_settings(sys.argv[1], Path(sys.argv[2]))
assert not changed, f"the first backend of a process changes: {', '.join(changed)}"
"""


@pytest.mark.clause("R9")
def test_settings_of_the_process(backend_name, tmp_path):
    """A backend changes no setting of its process when it is opened, used and closed.

    Working directory, locale, umask, environment variables, signal handlers, limits, decimal
    context and so on belong to the user. This applies to the first backend of a process and to
    later ones.
    """
    done = in_a_child(FIRST, backend_name, str(tmp_path / "first"))
    assert done.returncode == 0, done.stderr
    assert not changed_settings(backend_name, tmp_path / "later")


@pytest.mark.clause("R10")
def test_one_thread_after_the_other(backend_name, tmp_path, storage):
    """Four threads, one after the other, may open, use, snapshot and close the same backend."""
    made = []

    def opened():
        made.append(mp.open_keyed_backend(backend_name, key_type=str, directory=tmp_path))

    def used():
        for key in ("a", "b"):
            made[0].set_current_key(key)
            made[0].get_partitioned_state(TOTAL).update(7)
            made[0].flush()

    def read():
        assert made[0].get_partitioned_state(TOTAL).value() == 7
        assert set(made[0].keys("total")) == {"a", "b"}

    def snapshotted():
        assert made[0].snapshot(1, storage).result().rows_written == 2

    def closed():
        made[0].close()

    # All threads live to the end, because the id of an ended thread may be used again.
    with ExitStack() as threads:
        for step in (opened, used, read, snapshotted, read, closed):
            threads.enter_context(ThreadPoolExecutor(1)).submit(step).result()


@pytest.mark.clause("R11")
def test_the_working_directory_may_change(backend_name, tmp_path, monkeypatch):
    """A backend with a relative directory still works after the working directory has changed."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with mp.open_keyed_backend(backend_name, key_type=str, directory="state") as backend:
        state = backend.get_partitioned_state(TOTAL)
        for number, place in enumerate(("there", "here", "there")):
            monkeypatch.chdir(tmp_path / place)
            backend.set_current_key(f"k{number}")
            state.update(number)
            backend.flush()
        assert sorted(backend.keys("total")) == ["k0", "k1", "k2"]
    assert list((tmp_path / "there").iterdir()) == []


WORDS = ("I", "i", "\u0131", "\u00df", "ss")


def strange_states(backend):
    """Return states whose values could depend on the time zone, the locale or the hash seed."""
    made = (
        mp.ValueStateDescriptor("moment", datetime),
        mp.MapStateDescriptor("scores", str, float),
        mp.ValueStateDescriptor("words", frozenset[str]),
        mp.ListStateDescriptor("listed", dict[str, int]),
    )
    return [backend.get_partitioned_state(each) for each in made]


def put_strange(backend, keys):
    """Write to the states of `strange_states`, and set a timer, under each of `keys`."""
    for number in keys:
        backend.set_current_key(f"k{number}")
        moment, scores, words, listed = strange_states(backend)
        moment.update(datetime(2026, 3, 29, 2, number, 59, 999_999))  # noqa: DTZ001 - no zone
        scores.put_all({word: place / 3 for place, word in enumerate(WORDS)})
        words.update(frozenset(WORDS[number % 5 :]))
        listed.add(dict.fromkeys(WORDS, number))
        backend.timer_queue("event").register(number, mp.VOID_NAMESPACE)


def expect_strange(backend, keys):
    """Check that the states and the timers contain the entries that `put_strange` wrote."""
    strange_states(backend)
    assert sorted(backend.keys("moment")) == sorted(f"k{number}" for number in keys)
    for number in keys:
        backend.set_current_key(f"k{number}")
        moment, scores, words, listed = strange_states(backend)
        expected = datetime(2026, 3, 29, 2, number, 59, 999_999)  # noqa: DTZ001 - no zone
        assert_same(moment.value(), expected)
        entries = {word: place / 3 for place, word in enumerate(WORDS)}
        assert_same(by_key(dict(scores.items())), by_key(entries))
        assert_same({word: scores.get(word) for word in WORDS}, entries)
        assert_same(words.value(), frozenset(WORDS[number % 5 :]))
        assert_same(listed.get(), [dict.fromkeys(WORDS, number)])
    timers = [(timer.timestamp, timer.key) for timer in backend.timer_queue("event").due(1000)]
    assert timers == [(number, f"k{number}") for number in keys]


STRANGER = """
import os, pickle, sys
from pathlib import Path
from millpond_conformance.clauses.test_process import expect_strange, put_strange
from millpond_conformance.opening import open_at
import millpond as mp
name, folder = sys.argv[1], Path(sys.argv[2])
os.chdir(folder / "elsewhere")
handle = pickle.loads((folder / "handle").read_bytes())
with mp.open_keyed_backend(name, key_type=str, directory=folder / "b", restore=[handle]) as backend:
    expect_strange(backend, range(20))
    put_strange(backend, range(20, 30))
    handle = backend.snapshot(2, handle.storage).result().handle
    (folder / "handle").write_bytes(pickle.dumps(handle))
with open_at(name, folder / "copy", ["v1"]) as copy:
    expect_strange(copy, range(20) if copy.version else ())
"""


@pytest.mark.clause("R12")
def test_a_process_with_other_settings(backend_name, open_backend, tmp_path):
    """A process with another hash seed, time zone, locale and folder restores the same values.

    That process restores a snapshot and opens the local copy. This process restores a snapshot of
    that process.
    """
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    (tmp_path / "elsewhere").mkdir()
    with open_at(backend_name, tmp_path / "copy") as copy:
        put_strange(copy, range(20))
        copy.flush("v1")
    backend = open_backend()
    put_strange(backend, range(20))
    handle = backend.snapshot(1, storage).result().handle
    (tmp_path / "handle").write_bytes(pickle.dumps(handle))
    other = {"PYTHONHASHSEED": "77", "TZ": "XYZ-12:45", "LC_ALL": "C"}
    done = in_a_child(STRANGER, backend_name, str(tmp_path), variables=other)
    assert done.returncode == 0, done.stderr
    again = pickle.loads((tmp_path / "handle").read_bytes())  # noqa: S301 - the child's
    restored = open_backend(restore=[again])
    assert sorted(restored.keys("moment")) == sorted(f"k{number}" for number in range(30))
    times = [timer.timestamp for timer in restored.timer_queue("event").due(1000)]
    assert times == [*range(20, 30)]


@pytest.mark.clause("R16")
def test_several_backends_at_once(backend_name, tmp_path, storage):
    """Several open backends of one process are independent, in one thread and in several.

    This holds even if their states, keys and namespaces have the same names. Their snapshots are
    independent, too.
    """
    with ExitStack() as stack:

        def opened(place, **options):
            directory = tmp_path / str(place)
            return stack.enter_context(
                mp.open_keyed_backend(backend_name, key_type=str, directory=directory, **options)
            )

        def worked(backend, number, rounds):
            for count in range(rounds):
                for key in ("a", "b"):
                    backend.set_current_key(key)
                    total = backend.get_partitioned_state(TOTAL)
                    items = backend.get_partitioned_state(ITEMS, namespace="n")
                    total.update((total.value() or 0) + number)
                    items.add(number)
                if count % 5 == 4:
                    backend.flush()

        def shown(backend):
            backend.set_current_key("b")
            items = backend.get_partitioned_state(ITEMS, namespace="n").get()
            return backend.get_partitioned_state(TOTAL).value(), items

        backends = [opened(number) for number in range(4)]
        for _ in range(7):
            for number, backend in enumerate(backends):
                worked(backend, number, 1)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(worked, backends, range(4), [50] * 4))
            futures = [backend.snapshot(1, storage) for backend in backends]
        expected = [(57 * number, [number] * 57) for number in range(4)]
        assert [shown(backend) for backend in backends] == expected
        again = [opened(f"again {n}", restore=[f.result().handle]) for n, f in enumerate(futures)]
        assert [shown(backend) for backend in again] == expected
