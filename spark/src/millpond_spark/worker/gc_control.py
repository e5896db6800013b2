"""Control of Python's cyclic garbage collector in a worker."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_UNFREEZE_EVERY = 16
"""After this number of full collections the next one looks at all objects again."""

_full_collections = 0


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector during a task; ``with_gc_between`` runs it between frames.

    Otherwise the collector would look at tens of thousands of new rows again and again, and none
    of them is garbage. Rows, packed output and flushed entries are freed before the collector
    resumes. A collection before the output was packed cost 1 µs a row, one before the flush 0.1 µs.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def with_gc_between(frames: Iterable[T]) -> Iterator[T]:
    """Yield frames; before each frame but the first, collect the garbage of the frame before."""
    for number, frame in enumerate(frames):
        if number:
            gc.collect(1)
        yield frame


def freeze_after_full_gc() -> None:
    """From now on, freeze the objects that survive a full collection, if Spark reuses the worker.

    PySpark's daemon runs a full collection after each task. It takes 28 ms of processor time for
    the 100,000 objects of loaded modules, and under 0.1 ms if they are frozen. Frozen objects that
    become cyclic garbage later wait for the next collection that looks at all objects.
    """
    if os.environ.get("SPARK_REUSE_WORKER") and _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def _collected(phase: str, about: dict[str, Any]) -> None:
    """Freeze the surviving objects; unfreeze all at every `_UNFREEZE_EVERY`-th full collection."""
    global _full_collections  # noqa: PLW0603 - the collector is the process's
    if phase != "stop" or about["generation"] != 2:  # noqa: PLR2004 - the oldest
        return
    _full_collections += 1
    if _full_collections % _UNFREEZE_EVERY:
        gc.freeze()
    else:
        gc.unfreeze()
