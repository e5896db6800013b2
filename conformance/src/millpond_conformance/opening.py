"""Opening a backend the way a worker does: at a version that its directory may still hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import millpond as mp
from millpond.backend import KeyedBackendParameters, KeyedStateBackend
from millpond.plugins import get_registry
from millpond.runtime.opening import create_backend
from millpond.types import key_codec_for

__all__ = ["open_at"]


def open_at(
    backend: str,
    directory: Path,
    versions: Iterable[str] = (),
    clock: mp.ManualClock | None = None,
    max_parallelism: int = 128,
) -> KeyedStateBackend:
    """A backend of string keys that may take over some versions, found in the directory.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        directory: its working space.
        versions: what ``flush`` called the states that may be taken over.
        clock: the source of processing time; by default one that stands at 0.
        max_parallelism: the number of key groups, all of which the backend owns.
    """
    registry = get_registry()
    parameters = KeyedBackendParameters(
        key_codec=key_codec_for(str),
        max_parallelism=max_parallelism,
        key_group_range=mp.KeyGroupRange(0, max_parallelism - 1),
        clock=clock or mp.ManualClock(0),
        config=mp.Config(),
        registry=registry,
        directory=directory,
        reuse_versions=frozenset(versions),
    )
    return create_backend(registry.resolve(backend), parameters)
