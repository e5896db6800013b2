"""Functions of the stateful machine that `FreshProcesses` calls in other processes."""

from __future__ import annotations

from typing import Any

import millpond as mp
import pyarrow as pa
from millpond.plugins import get_registry
from millpond.snapshots.handles import KeyedStateHandle

from millpond_conformance.model import GROUPS, observations
from millpond_conformance.opening import open_wrapped


def prepare(backend: str) -> None:
    """Load the backend's plugin without opening a backend."""
    get_registry().load(get_registry().resolve(backend))
    # If pandas is installed, creating the first array imports it, which takes a second.
    pa.array([0])


def moved(
    backend: str, wrapped: str, directory: str, handle: KeyedStateHandle, now: int, number: int
) -> tuple[Any, Any]:
    """Restore a snapshot, and return the contents of the backend and the handle of a new snapshot.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.
        directory: the backend's directory.
        handle: the handle of the snapshot to restore.
        now: the processing time in ms.
        number: the checkpoint id of the new snapshot.
    """
    with open_wrapped(
        backend,
        wrapped,
        key_type=str,
        max_parallelism=GROUPS,
        directory=directory,
        clock=mp.ManualClock(now),
        restore=[handle],
    ) as opened:
        seen = observations(opened)
        assert handle.storage is not None
        return seen, opened.snapshot(number, handle.storage).result().handle
