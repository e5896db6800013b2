"""Getting the backend of a subtask at exactly the pointer's version, by the cheapest way.

In this order: this worker still has it; this worker or the local directory has an earlier
version of the same chain, and the missing deltas are applied; the snapshot is restored. A copy
that is ahead, after a replay, or that another attempt has written, is at a version that the
pointer's chain does not hold, so it is never used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from millpond.backend import Capability, KeyedBackendParameters, KeyedStateBackend
from millpond.checkpoint import CheckpointStorage, KeyedStateHandle, catch_up, restore_keyed
from millpond.clock import SystemClock
from millpond.keygroups import KeyGroupRange
from millpond.plugins import get_registry
from millpond.runtime.opening import create_backend
from millpond.spark.localcopy import claimed_directory, local_root
from millpond.spark.plan import OperatorPlan

__all__ = ["Acquired", "acquire_backend"]

_KEPT_AT_MOST = 16
_kept: OrderedDict[tuple[Any, ...], KeyedStateBackend] = OrderedDict()
"""Backends that this worker process keeps between tasks."""


@attrs.define
class Acquired:
    """A backend for the time of a task.

    Attributes:
        source: ``new``, ``worker``, ``local``, ``deltas`` or ``snapshot``.
        succeeded: set by the task at its end; only then is the backend kept.
    """

    backend: KeyedStateBackend
    source: str
    succeeded: bool = False


@contextmanager
def acquire_backend(
    plan: OperatorPlan,
    query: str,
    groups: KeyGroupRange,
    handle: KeyedStateHandle | None,
) -> Iterator[Acquired]:
    """The backend of a subtask at the version of a handle; None: empty."""
    identity = (query, plan.uid, groups, plan.resolution, repr(plan.config))
    place = f"{query}/{plan.uid}"
    folder = f"kg-{groups.start}-{groups.end}-{plan.resolution.name.replace(':', '_')}"
    with claimed_directory(local_root() / place / folder) as (directory, shared):
        acquired = _from_worker(identity, plan, handle) or _open(
            plan, place, groups, handle, directory, shared=shared
        )
        backend = acquired.backend
        try:
            yield acquired
        finally:
            keeps = Capability.IN_PROCESS_COPY in backend.capabilities
            if acquired.succeeded and keeps:
                _keep(identity, backend)
            else:
                backend.close()


def _keep(identity: tuple[Any, ...], backend: KeyedStateBackend) -> None:
    _kept[identity] = backend
    while len(_kept) > _KEPT_AT_MOST:
        _kept.popitem(last=False)[1].close()


def _from_worker(
    identity: tuple[Any, ...], plan: OperatorPlan, handle: KeyedStateHandle | None
) -> Acquired | None:
    backend = _kept.pop(identity, None)
    if backend is None:
        return None
    if handle is None:
        backend.close()
        return None
    current = backend.version == handle.version
    if not catch_up(backend, handle):
        backend.close()
        return None
    if current:
        backend.notify_checkpoint_complete(handle.checkpoint_id)
    else:
        _start(backend, plan, handle)
    return Acquired(backend, "worker" if current else "deltas")


def _open(
    plan: OperatorPlan,
    place: str,
    groups: KeyGroupRange,
    handle: KeyedStateHandle | None,
    directory: Path,
    *,
    shared: bool,
) -> Acquired:
    registry = get_registry(plan.config.plugins)
    keeps = Capability.LOCAL_COPY in registry.load(plan.resolution).capabilities
    usable = frozenset[str]()
    if handle is not None and shared and keeps:
        usable = handle.ancestors() | {handle.version}
    parameters = KeyedBackendParameters(
        key_codec=plan.key_codec(),
        max_parallelism=plan.max_parallelism,
        key_group_range=groups,
        clock=SystemClock(),
        config=plan.config,
        registry=registry,
        directory=directory,
        reuse_versions=usable,
        options=plan.config.backend_options(plan.resolution.name),
        place=place,
    )
    backend = create_backend(plan.resolution, parameters)
    try:
        source = _fill(backend, handle)
        _start(backend, plan, handle)
    except BaseException:
        backend.close()
        raise
    return Acquired(backend, source)


def _fill(backend: KeyedStateBackend, handle: KeyedStateHandle | None) -> str:
    if handle is None:
        return "new"
    found = backend.version
    if found is not None and catch_up(backend, handle):
        return "local" if found == handle.version else "deltas"
    restore_keyed(backend, [handle])
    backend.flush(handle.version)
    return "snapshot"


def _start(backend: KeyedStateBackend, plan: OperatorPlan, handle: KeyedStateHandle | None) -> None:
    backend.strategy(plan.config.state.snapshot.strategy).start(handle)


def storage_files(storage: CheckpointStorage, place: str) -> set[str]:
    """The key-group folders that snapshots of an operator have left."""
    return {path.removeprefix(f"{place}/").partition("/")[0] for path in storage.list(place)}
