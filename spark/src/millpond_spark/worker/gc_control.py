"""Control of Python's cyclic garbage collector in a worker."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_UNFREEZE_EVERY = 16
"""Once in this number of full collections, all objects are unfrozen."""

_full_collections = 0


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector during a task. ``with_gc_between`` runs it between frames.

    Otherwise the collector would visit tens of thousands of new rows several times, and none of
    them is garbage. A collection before the output is packed costs 1 µs a row, and a collection
    before the flush 0.1 µs.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def with_gc_between(frames: Iterable[T]) -> Iterator[T]:
    """Yield `frames`, and run the garbage collector between two frames."""
    for number, frame in enumerate(frames):
        if number:
            gc.collect(1)
        yield frame


def freeze_after_full_gc() -> None:
    """Make each full garbage collection freeze the surviving objects, if Spark reuses the worker.

    PySpark's daemon runs a full collection after each task. The collection takes 28 ms of processor
    time for the 100,000 objects of loaded modules, and less than 0.1 ms if these are frozen. If
    frozen objects become cyclic garbage, they are freed after the next time that all objects are
    unfrozen.
    """
    if os.environ.get("SPARK_REUSE_WORKER") and _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def _collected(phase: str, about: dict[str, Any]) -> None:
    """Freeze all objects after a full collection; unfreeze them after each `_UNFREEZE_EVERY`-th."""
    global _full_collections  # noqa: PLW0603 - the collector is the process's
    if phase != "stop" or about["generation"] != 2:  # noqa: PLR2004 - the oldest
        return
    _full_collections += 1
    if _full_collections % _UNFREEZE_EVERY:
        gc.freeze()
    else:
        gc.unfreeze()
