"""Open a backend for a clause, in a new directory or in a directory with earlier files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import attrs
import millpond as mp
from millpond.backend import KeyedStateBackend
from millpond.operator.opening import create_backend
from millpond.plugins import get_registry
from millpond.spi import KeyedBackendParameters
from millpond.types import key_codec_for

from millpond_conformance.wrapping import config_for, wrap


def open_wrapped(backend: str, wrapped: str, **options: Any) -> KeyedStateBackend:
    """Call ``mp.open_keyed_backend``, and put wrappers of the core around every state.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        wrapped: the wrappers; one of ``WRAPPERS``.
        options: the arguments of ``mp.open_keyed_backend``.
    """
    config = config_for(wrapped, options.pop("config", None) or mp.Config())
    return wrap(wrapped, mp.open_keyed_backend(backend, config=config, **options))


def open_at(
    backend: str,
    directory: Path,
    versions: Iterable[str] = (),
    clock: mp.ManualClock | None = None,
    max_parallelism: int = 128,
    wrapped: str = "none",
    *,
    key_type: Any = str,
    config: mp.Config | None = None,
) -> KeyedStateBackend:
    """Open a backend in a directory that may have files of an earlier backend.

    If the earlier backend was closed properly at one of `versions`, the new one may use the files.
    Otherwise the new backend must be empty.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        directory: the backend's directory.
        versions: names of versions that were given to ``flush``.
        clock: the source of processing time; by default a clock at 0 that does not advance.
        max_parallelism: the number of key groups. The backend owns all of them.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.
        key_type: the type of the keys.
        config: the configuration of the backend; by default ``mp.Config()``.
    """
    configured = config_for(wrapped, config or mp.Config())
    clock = clock or mp.ManualClock(0)
    given = _parameters(directory, versions, clock, max_parallelism, key_type, configured)
    return wrap(wrapped, create_backend(get_registry().backend(backend), given))


def open_as_left(backend: str, directory: Path, versions: Iterable[str]) -> KeyedStateBackend:
    """Open a backend like ``open_at``, but with the files of a process that was killed.

    The core would delete these files, because the marker of a proper shutdown is missing. This
    function calls the backend's factory without the core. So it shows how the backend itself treats
    the files.
    """
    factory = get_registry().backend(backend)
    given = _parameters(directory, versions, mp.ManualClock(0), 128, str, mp.Config())
    made = factory.create_keyed_backend(attrs.evolve(given, capabilities=factory.capabilities))
    return cast("KeyedStateBackend", made)


def _parameters(
    directory: Path,
    versions: Iterable[str],
    clock: mp.ManualClock,
    max_parallelism: int,
    key_type: Any,
    config: mp.Config,
) -> KeyedBackendParameters:
    return KeyedBackendParameters(
        key_codec=key_codec_for(key_type),
        max_parallelism=max_parallelism,
        key_group_range=mp.KeyGroupRange(0, max_parallelism - 1),
        clock=clock,
        config=config,
        registry=get_registry(),
        directory=directory,
        reuse_versions=frozenset(versions),
    )
