"""Functions that run in a process until it is killed, and the contents that remain afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import millpond as mp
from millpond.snapshots.restore import restore_keyed

from millpond_conformance.opening import open_at

Held = tuple[int | str | None, list[int], dict[str, int]]
"""The contents of a value, a list and a map under one key."""

Step = int | str
"""One step of `killed`: a number to write, the name of an action, or a version to flush."""

_TOTAL = mp.ValueStateDescriptor("total", int)
_ITEMS = mp.ListStateDescriptor("items", int)
_SCORES = mp.MapStateDescriptor("scores", str, int)
_SMALL = mp.Config({"buffer.max-entries": 16})
_BEFORE = 3
"""Number of complete flushes before the timer for the kill is started."""
_KEYS = [f"k{number}" for number in range(40)]
CROWD = [f"k{number}" for number in range(60_000)]
"""The keys whose values `killed_in_a_large_flush` writes by one flush."""


def _put(backend: Any, number: int, keys: Iterable[str]) -> None:
    """Write a number to the three states of each key."""
    for key in keys:
        backend.set_current_key(key)
        backend.get_partitioned_state(_TOTAL).update(number)
        backend.get_partitioned_state(_ITEMS).add(number)
        backend.get_partitioned_state(_SCORES).put(str(number), number)


def _clear(backend: Any, keys: Iterable[str]) -> None:
    """Empty the three states of each key."""
    for key in keys:
        backend.set_current_key(key)
        for descriptor in (_TOTAL, _ITEMS, _SCORES):
            backend.get_partitioned_state(descriptor).clear()


def contents(backend: Any) -> dict[str, Held]:
    """Return the contents of the three states for each key that has any.

    A total that is not an int is returned as text.
    """
    found = {}
    for key in _KEYS:
        backend.set_current_key(key)
        total = backend.get_partitioned_state(_TOTAL).value()
        items = backend.get_partitioned_state(_ITEMS).get()
        scores = dict(backend.get_partitioned_state(_SCORES).items())
        if total is not None or items or scores:
            found[key] = (total if type(total) in (int, type(None)) else repr(total), items, scores)
    return found


def killed(backend_name: str, directory: str, *steps: Step) -> None:
    """Take some steps on a new backend, and kill this process. Runs in a child process."""
    backend = open_at(backend_name, Path(directory), config=_SMALL)
    for step in steps:
        if step == "restore":
            handle = backend.snapshot(1, mp.checkpoint_storage("memory:killed")).result().handle
            backend.close()
            backend = open_at(backend_name, Path(directory), config=_SMALL)
            restore_keyed(backend, [handle])
            continue
        _take(backend, step)
    os.kill(os.getpid(), signal.SIGKILL)


def _take(backend: Any, step: Step) -> None:
    actions: dict[Step, Callable[[], Any]] = {
        "fill": lambda: _put(backend, 7, _KEYS),
        "clear": lambda: _clear(backend, _KEYS[:2]),
        "count": backend.num_state_entries,
        "list": lambda: list(backend.keys("total")),
        "migrate": lambda: backend.get_partitioned_state(mp.ValueStateDescriptor("total", float)),
        "flush": backend.flush,
    }
    if isinstance(step, int):
        _put(backend, step, _KEYS[:3])
    else:
        actions.get(step, lambda: backend.flush(step))()


def versions_of(steps: Iterable[Step]) -> dict[str | None, dict[str, Held]]:
    """Return the contents that a store must have at each version ``v1`` and ``v2``.

    Args:
        steps: the steps that `killed` has taken.
    """
    named: dict[str | None, dict[str, Held]] = {}
    now: dict[str, Held] = {}

    def wrote(number: int, keys: Iterable[str]) -> None:
        for key in keys:
            _, items, scores = now.get(key, (None, [], {}))
            now[key] = (number, [*items, number], {**scores, str(number): number})

    for step in steps:
        if isinstance(step, int):
            wrote(step, _KEYS[:3])
        elif step == "fill":
            wrote(7, _KEYS)
        elif step == "clear":
            for key in _KEYS[:2]:
                now.pop(key, None)
        elif step in ("v1", "v2"):
            named[step] = dict(now)
    return named


def restless(backend_name: str, directory: str, seconds: float) -> None:
    """Flush repeatedly until a timer kills this process. Runs in a child process.

    Each completed flush is recorded as one byte in a file next to the directory.

    Args:
        backend_name: an installed backend's name, or ``module:attr``.
        directory: the backend's directory.
        seconds: the time from the third flush to the kill.
    """
    backend = open_at(backend_name, Path(directory))
    states = [backend.get_partitioned_state(mp.ValueStateDescriptor(n, int)) for n in "ab"]
    marker = os.open(f"{directory}.flushed", os.O_WRONLY | os.O_CREAT, 0o600)
    for number in range(1, 100_000):
        for key in range(20):
            backend.set_current_key(f"k{key}")
            for state in states:
                state.update(number)
        backend.flush(f"v{number}")
        os.write(marker, b".")
        if number == _BEFORE:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))


def restless_numbers(backend: Any) -> set[int | None]:
    """Return all different numbers in the states that `restless` has written.

    If there is more than one number, the store has only a part of a flush.
    """
    found = set()
    for key in _KEYS[:20]:
        backend.set_current_key(key)
        for name in "ab":
            descriptor = mp.ValueStateDescriptor(name, int)
            found.add(backend.get_partitioned_state(descriptor).value())
    return found


def killed_in_a_large_flush(backend_name: str, directory: str, share: float) -> None:
    """Overwrite many values by one flush, during which a timer kills this process.

    Runs in a child process.

    Args:
        backend_name: an installed backend's name, or ``module:attr``.
        directory: the backend's directory.
        share: the time from the beginning of the flush to the kill, divided by the duration of the
            previous flush.
    """
    backend = open_at(backend_name, Path(directory))
    total = backend.get_partitioned_state(_TOTAL)
    total.update_many(CROWD, [1] * len(CROWD))
    began = time.perf_counter()
    backend.flush("v1")
    took = time.perf_counter() - began
    total.update_many(CROWD, [2] * len(CROWD))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(took * share, 1e-6))
    backend.flush("v2")
    signal.pause()
