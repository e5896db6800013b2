"""Python's cyclic garbage collector in a worker: when it runs, and what it looks at."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_WHOLE_ONES = 16
"""Of so many full collections one looks at everything."""

_full_collections = 0


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector for a task; between frames it runs once.

    It would look at tens of thousands of fresh rows again and again, none of them garbage. What
    is gone when it goes on, rows, packed output, flushed entries, costs it nothing. Where it ran
    before the output was packed, that alone took 1 µs a row more; before the flush, 0.1.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def with_gc_between(frames: Iterable[T]) -> Iterator[T]:
    """Frames; before each but the first, the garbage of those before is collected."""
    for number, frame in enumerate(frames):
        if number:
            gc.collect(1)
        yield frame


def freeze_after_full_gc() -> None:
    """Set aside what a full collection leaves, in a worker that Spark uses again.

    PySpark's daemon runs one after each task, over every module: 28 ms of processor time for
    100,000 objects, 60 where others use the machine, and under 0.1 once they are set aside. What it
    leaves is in use; what of it becomes garbage later and is part of a cycle waits for the next
    collection that looks at everything.
    """
    if os.environ.get("SPARK_REUSE_WORKER") and _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def _collected(phase: str, about: dict[str, Any]) -> None:
    global _full_collections  # noqa: PLW0603 - the collector is the process's
    if phase != "stop" or about["generation"] != 2:  # noqa: PLR2004 - the oldest
        return
    _full_collections += 1
    if _full_collections % _WHOLE_ONES:
        gc.freeze()
    else:
        gc.unfreeze()
