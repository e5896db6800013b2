"""Getting the backend of a subtask at exactly the pointer's version, by the cheapest way.

In this order: this worker still has it; this worker or the local directory has an earlier
version of the same chain, and the missing deltas are applied; the snapshot is restored. A copy
that is ahead, after a replay, or that another attempt has written, is at a version that the
pointer's chain does not hold, so it is never used.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from millpond.backend import Capability, KeyedBackendParameters, KeyedStateBackend
from millpond.checkpoint import KeyedStateHandle, catch_up, restore_keyed
from millpond.clock import ManualClock
from millpond.errors import CorruptSnapshotError, MillpondError, RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.runtime.opening import create_backend
from millpond.spark.driver.plan import OperatorPlan
from millpond.spark.worker.committed_state import CommittedState
from millpond.spark.worker.local_copy import claimed_directory, local_root

__all__ = ["Acquired", "acquire_backend"]

_LOG = logging.getLogger("millpond.restore")

_KEPT_AT_MOST = 16
_kept: OrderedDict[tuple[Any, ...], KeyedStateBackend] = OrderedDict()
"""Backends that this worker process keeps between tasks."""


@attrs.define
class Acquired:
    """A backend for the time of a task.

    Attributes:
        source: ``new``, ``worker``, ``local``, ``deltas``, ``snapshot`` or ``rescaled``.
        copies_discarded: how many copies were of no use and thrown away on the way.
        succeeded: set by the task at its end; only then is the backend kept.
    """

    backend: KeyedStateBackend
    source: str
    copies_discarded: int = 0
    succeeded: bool = False


@contextmanager
def acquire_backend(
    plan: OperatorPlan,
    query: str,
    groups: KeyGroupRange,
    committed: CommittedState,
    now: int,
) -> Iterator[Acquired]:
    """The backend of a subtask at exactly what is committed, at the batch's time in ms.

    Raises:
        RestoreError: every way has failed; it names all causes.
    """
    keys = (plan.key_names, plan.key_fields)
    identity = (query, plan.uid, groups, plan.resolution, repr(plan.config), keys)
    place = f"{query}/{plan.uid}"
    folder = f"kg-{groups.start}-{groups.end}-{plan.resolution.name.replace(':', '_')}"
    with claimed_directory(local_root() / place / folder) as (directory, shared):
        failures: list[str] = []
        clock = ManualClock(now)
        acquired = _from_worker(identity, plan, committed.handle, failures) or _open(
            plan, place, groups, committed, directory, failures, clock, shared=shared
        )
        acquired.copies_discarded = len(failures)
        backend = acquired.backend
        kept_clock = backend.parameters.clock
        assert isinstance(kept_clock, ManualClock)
        kept_clock.set(now)
        try:
            yield acquired
        finally:
            _give_back(identity, acquired)


def _give_back(identity: tuple[Any, ...], acquired: Acquired) -> None:
    backend = acquired.backend
    if acquired.succeeded and Capability.IN_PROCESS_COPY in backend.capabilities:
        _keep(identity, backend)
        return
    if not acquired.succeeded:
        # Whatever has failed: the next attempt must not meet the same copy again.
        backend.distrust()
    backend.close()


def _keep(identity: tuple[Any, ...], backend: KeyedStateBackend) -> None:
    _kept[identity] = backend
    while len(_kept) > _KEPT_AT_MOST:
        _kept.popitem(last=False)[1].close()


def _from_worker(
    identity: tuple[Any, ...],
    plan: OperatorPlan,
    handle: KeyedStateHandle | None,
    failures: list[str],
) -> Acquired | None:
    backend = _kept.pop(identity, None)
    if backend is None:
        return None
    if handle is None:
        backend.close()
        return None
    current = backend.version == handle.version
    if not _caught_up(backend, handle, failures, "this worker's copy"):
        backend.close()
        return None
    if current:
        backend.notify_checkpoint_complete(handle.checkpoint_id)
    else:
        _start(backend, plan, handle)
    return Acquired(backend, "worker" if current else "deltas")


def _parameters(
    plan: OperatorPlan,
    place: str,
    groups: KeyGroupRange,
    directory: Path,
    usable: frozenset[str],
    clock: ManualClock,
) -> KeyedBackendParameters:
    return KeyedBackendParameters(
        key_codec=plan.key_codec(),
        max_parallelism=plan.max_parallelism,
        key_group_range=groups,
        clock=clock,
        config=plan.config,
        registry=plan.registry,
        directory=directory,
        reuse_versions=usable,
        options=plan.config.backend_options(plan.resolution.name),
        place=place,
    )


def _open(
    plan: OperatorPlan,
    place: str,
    groups: KeyGroupRange,
    committed: CommittedState,
    directory: Path,
    failures: list[str],
    clock: ManualClock,
    *,
    shared: bool,
) -> Acquired:
    factory = plan.registry.load(plan.resolution)
    keeps = Capability.LOCAL_COPY in factory.capabilities
    handle = committed.handle
    usable = frozenset[str]()
    if handle is not None and shared and keeps:
        usable = handle.ancestors() | {handle.version}
    parameters = _parameters(plan, place, groups, directory, usable, clock)
    backend = create_backend(factory, parameters)
    if backend.discarded:
        _given_up(place, "the local copy", backend.discarded, failures)
    try:
        found = backend.version
        if handle is not None and found is not None:
            if _caught_up(backend, handle, failures, "the local copy"):
                _start(backend, plan, handle)
                return Acquired(backend, "local" if found == handle.version else "deltas")
            backend.close()
            emptied = attrs.evolve(parameters, reuse_versions=frozenset())
            backend = create_backend(factory, emptied)
        source = _restore(backend, committed, failures)
        _start(backend, plan, handle)
    except BaseException:
        backend.close()
        raise
    return Acquired(backend, source)


def _caught_up(
    backend: KeyedStateBackend, handle: KeyedStateHandle, failures: list[str], what: str
) -> bool:
    """Whether a copy could be brought to the snapshot; if it failed, why goes into the log."""
    try:
        return catch_up(backend, handle)
    except MillpondError as error:
        _given_up(backend.parameters.place, what, str(error), failures)
        return False


def _given_up(place: str, what: str, reason: str, failures: list[str]) -> None:
    _LOG.warning("%s: %s is of no use: %s", place, what, reason)
    failures.append(f"{what}: {reason}")


def _restore(backend: KeyedStateBackend, committed: CommittedState, failures: list[str]) -> str:
    """Fill an empty backend from the storage, which is the last resort."""
    handles = [*committed.sources] if committed.handle is None else [committed.handle]
    if not handles:
        return "new"
    try:
        restore_keyed(backend, handles)
    except CorruptSnapshotError as error:
        if not failures:
            raise
        causes = (*failures, f"the snapshot: {error}")
        raise RestoreError(backend.parameters.place, causes) from error
    if committed.handle is not None:
        backend.flush(committed.handle.version)
    return "snapshot" if committed.handle is not None else "rescaled"


def _start(backend: KeyedStateBackend, plan: OperatorPlan, handle: KeyedStateHandle | None) -> None:
    backend.strategy(plan.config.state.snapshot.strategy).start(handle)
