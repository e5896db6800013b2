"""Clauses: the memory of Python objects in backends that store their state in a directory."""

import gc
import random
import tracemalloc
from contextlib import contextmanager

import millpond as mp
import pytest
from millpond.plugins import get_registry
from millpond.spi import Capability

from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.semantics import KINDS, MODES, descriptor_of

SIZE, LARGE, SMALL, AT_ONCE, RESTORED = 64 << 10, 128, 3000, 16, 256
WINDOWS = 1000
WINDOWED = {kind: descriptor_of(kind, MODES[0], f"windowed {kind}") for kind in KINDS}
LIMITS = mp.Config({"buffer.max-bytes": 1 << 20, "buffer.max-entries": 256})
BLOB = mp.ValueStateDescriptor("blob", bytes)
BLOBS = mp.ListStateDescriptor("blobs", bytes)
NAMED = mp.MapStateDescriptor("named", str, bytes)
TOTAL = mp.ValueStateDescriptor("total", int)
NUMBERS = mp.ListStateDescriptor("numbers", int)
SCORES = mp.MapStateDescriptor("scores", str, int)


def blob():
    """Return a value of 64 KiB."""
    return random.Random(1).randbytes(SIZE)  # noqa: S311 - data, no secret


def on_each(backend, count, *accesses):
    """Run the functions `accesses` under each of `count` keys."""
    for number in range(count):
        backend.set_current_key(f"k{number}")
        for access in accesses:
            access()


def large_ones(backend):
    """Return functions by name; each writes or reads values of 8 MiB in total."""
    value, blobs, named = map(backend.get_partitioned_state, (BLOB, BLOBS, NAMED))
    keys = [f"k{number}" for number in range(LARGE)]
    parts = [keys[at : at + AT_ONCE] for at in range(0, LARGE, AT_ONCE)]
    value.get_many(keys)  # the first call imports modules, which must not count
    return {
        "update": lambda: on_each(backend, LARGE, lambda: value.update(blob())),
        "value": lambda: on_each(backend, LARGE, value.value),
        "update_many": lambda: [value.update_many(p, [blob() for _ in p]) for p in parts],
        "get_many": lambda: [len(value.get_many(part)) for part in parts],
        "list": lambda: on_each(backend, LARGE, lambda: blobs.add(blob()), blobs.get),
        "map": lambda: on_each(backend, LARGE, lambda: named.put("a", blob())),
        "map get": lambda: on_each(backend, LARGE, lambda: named.get("a")),
    }


def small_ones(backend):
    """Return functions by name; each writes or reads 3,000 entries."""
    total, numbers, scores = map(backend.get_partitioned_state, (TOTAL, NUMBERS, SCORES))
    timers = backend.timer_queue("event")
    return {
        "update": lambda: on_each(backend, SMALL, lambda: total.update(7)),
        "value": lambda: on_each(backend, SMALL, total.value),
        "list": lambda: on_each(backend, SMALL, lambda: numbers.add(7)),
        "map": lambda: on_each(backend, SMALL, lambda: scores.put("a", 7)),
        "timers": lambda: on_each(backend, SMALL, lambda: timers.register(7, mp.VOID_NAMESPACE)),
    }


@contextmanager
def at_most(kibibytes, what):
    """Fail if the memory of Python objects grows by more than `kibibytes` in the block."""
    tracemalloc.start()
    try:
        yield
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < kibibytes << 10, f"{what}: {most >> 10} KiB"


def come_and_go(backend, first):
    """Write to each kind of state under `WINDOWS` new keys and namespaces, and clear it there."""
    timers = backend.timer_queue("windows", int)
    for at in range(first, first + WINDOWS):
        backend.set_current_key(f"k{at}")
        timers.register(at, at)
        timers.delete(at, at)
        for kind in KINDS:
            state = backend.get_partitioned_state(WINDOWED[kind], at)
            if kind == "map":
                state.put("a", [1])
            elif kind == "value":
                state.update([1])
            else:
                state.add(1 if kind in ("aggregating", "folding") else [1])
            state.clear()
    backend.flush()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.clause("R23")
def test_memory_is_bounded(open_backend: BackendOpener, backend_name, storage):
    """A backend's Python memory does not grow with keys, namespaces and timers that were cleared.

    With the capability local-copy, it is bounded by the buffer, here of 1 MiB and 256 entries.
    Writes and reads of 8 MiB in large values take less than 5 MiB, those of 3,000 small entries
    less than 400 KiB, and a restore of 16 MiB less than 8 MiB.
    """
    passing = open_backend(config=LIMITS)
    tracemalloc.start()
    try:
        after = [come_and_go(passing, first) for first in range(0, 3 * WINDOWS, WINDOWS)]
    finally:
        tracemalloc.stop()
    assert after[2] - after[1] < 64 << 10
    if Capability.LOCAL_COPY not in get_registry().backend(backend_name).capabilities:
        return  # its state is in memory by design
    for works, limit in ((large_ones, 5 << 10), (small_ones, 400)):
        backend = open_backend(config=LIMITS)
        for name, work in works(backend).items():
            with at_most(limit, name):
                work()
            backend.flush()
    large = open_backend(config=LIMITS)
    state = large.get_partitioned_state(BLOB)
    on_each(large, RESTORED, lambda: state.update(blob()))
    handle = large.snapshot(1, storage).result().handle
    with at_most(8 << 10, "restore"):
        open_backend(config=LIMITS, restore=[handle])
