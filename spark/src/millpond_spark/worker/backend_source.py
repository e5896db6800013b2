"""The source of a task's backend: this worker's cache, a local copy, or the snapshot.

In each batch Spark chooses the worker process that runs a subtask. A worker keeps its last backends
open in a cache. If the next task of a subtask runs in the same worker, it finds its backend in the
cache. Otherwise it uses the local copy, the backend's directory that an earlier task has left on
the machine, or restores the snapshot.
"""

from __future__ import annotations

import gc
import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import attrs
from millpond.backend import KeyedStateBackend
from millpond.clock import ManualClock
from millpond.errors import CorruptSnapshotError, MillpondError, RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.operator.opening import create_backend
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.restore import catch_up, has_keys_of, restore_keyed
from millpond.spi import Capability, KeyedBackendParameters

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.worker.committed_state import CommittedState
from millpond_spark.worker.local_copies import claimed_directory, place_of_copy

Terms: TypeAlias = tuple[object, ...]
"""The run, plugin, configuration and keys of a cached backend.

A task may use the backend only if its own values are equal.
"""

_CACHED_AT_MOST = 16
_cache: OrderedDict[Hashable, tuple[Terms, KeyedStateBackend]] = OrderedDict()
"""The open backends with their terms, by operator and key groups, least recently used first."""


def _evict(backend: KeyedStateBackend) -> None:
    """Close a cached backend, and let the next full garbage collection find its objects."""
    held = backend.num_state_entries()
    backend.close()
    if held:
        gc.unfreeze()


_LOG = logging.getLogger("millpond.restore")


@attrs.define
class Acquired:
    """The backend that a task uses, with its source.

    Attributes:
        source: ``new`` for an empty backend; ``worker`` for the cached backend; ``local`` for the
            local copy; ``deltas`` for one of these two plus newer deltas; ``snapshot`` for the
            subtask's snapshot; ``rescaled`` for snapshots of other subtasks or a savepoint.
        copies_discarded: the number of copies that could not be used.
        succeeded: whether the task has succeeded. The task sets it. Only then is the backend
            cached.
    """

    backend: KeyedStateBackend
    source: str
    copies_discarded: int = 0
    succeeded: bool = False


@contextmanager
def acquire_backend(
    plan: OperatorPlan,
    query: str,
    run: str,
    groups: KeyGroupRange,
    committed: CommittedState,
    now: int,
) -> Iterator[Acquired]:
    """Open the backend of a subtask with exactly the committed state; at the end close or cache it.

    Args:
        plan: the operator's plan.
        query: the query's id.
        run: the id of the query's run. A cached backend of another run is not used.
        groups: the subtask's key groups.
        committed: the committed state of the subtask.
        now: the batch's time in ms.

    Raises:
        RestoreError: every source has failed; the error names all causes.
    """
    source = _Source(plan, OperatorId(query, plan.uid), run, groups, committed)
    name = f"kg-{groups.start}-{groups.end}-{plan.resolution.name.replace(':', '_')}"
    path = place_of_copy(f"{source.operator.folder}/{name}", plan.config.local.dir)
    with claimed_directory(path) as (directory, shared):
        acquired = source.from_worker() or source.opened(directory, ManualClock(now), shared=shared)
        acquired.copies_discarded = len(source.failures)
        kept_clock = acquired.backend.parameters.clock
        assert isinstance(kept_clock, ManualClock)
        kept_clock.set(now)
        backend = acquired.backend
        try:
            yield acquired
        finally:
            if acquired.succeeded and Capability.IN_PROCESS_COPY in backend.capabilities:
                _cache[source.owner] = source.terms, backend
                while len(_cache) > _CACHED_AT_MOST:
                    _evict(_cache.popitem(last=False)[1][1])
            else:
                if not acquired.succeeded:
                    # The next attempt must not use this local copy, which may be the cause.
                    backend.forbid_local_copy()
                backend.close()


@attrs.frozen
class _Source:
    """The sources of one subtask's backend.

    Attributes:
        failures: the reasons why the cached backend and the local copy could not be used.
    """

    plan: OperatorPlan
    operator: OperatorId
    run: str
    groups: KeyGroupRange
    committed: CommittedState
    failures: list[str] = attrs.field(factory=list)

    @property
    def owner(self) -> tuple[Any, ...]:
        """The key of the cache: the operator and the subtask's key groups."""
        return self.operator, self.groups

    @property
    def terms(self) -> tuple[Any, ...]:
        """The values that must be equal for a cached backend to be reused.

        They include the run, because the function may have changed since the last run, and the
        types of its states too. A new run restores the snapshot, which migrates the state.
        """
        plan = self.plan
        keys = (plan.key_names, plan.key_fields)
        return self.run, plan.resolution, repr(plan.config), keys

    def from_worker(self) -> Acquired | None:
        """Return the cached backend; None if there is no cached backend that can be used."""
        terms, backend = _cache.pop(self.owner, (None, None))
        if backend is None:
            return None
        handle = self.committed.handle
        if handle is None or terms != self.terms:
            _evict(backend)
            return None
        current = backend.version == handle.version
        backend.restored_bytes.clear()
        if not self._caught_up(backend, handle, "this worker's copy"):
            _evict(backend)
            return None
        if current:
            backend.notify_checkpoint_complete(handle.checkpoint_id)
        else:
            self._start(backend)
        return Acquired(backend, "worker" if current else "deltas")

    def opened(self, directory: Path, clock: ManualClock, *, shared: bool) -> Acquired:
        """Open a backend with the local copy if possible; otherwise restore the committed state.

        Args:
            directory: the directory that the task has locked.
            clock: the backend's clock.
            shared: whether `directory` is the subtask's own directory, which may have a copy, and
                not a private one.
        """
        plan, handle = self.plan, self.committed.handle
        factory = plan.registry.load(plan.resolution)
        usable = frozenset[str]()  # the versions from which deltas lead to the snapshot
        recovers = plan.config.local.recovery and Capability.LOCAL_COPY in factory.capabilities
        if shared and handle is not None and recovers:
            usable = handle.ancestors() | {handle.version}
        parameters = KeyedBackendParameters(
            key_codec=plan.key_codec(),
            max_parallelism=plan.max_parallelism,
            key_group_range=self.groups,
            clock=clock,
            config=plan.config,
            registry=plan.registry,
            directory=directory,
            reuse_versions=usable,
            options=plan.config.backend_options(plan.resolution.name),
            operator=self.operator,
        )
        files = directory.rglob("*") if usable else ()
        size = sum(path.stat().st_size for path in files if path.is_file())
        backend = create_backend(factory, parameters)
        if backend.discarded:
            self._give_up("the local copy", backend.discarded)
        found = backend.version
        try:
            if handle is None or found is None:
                source = self._restored(backend)
            elif self._caught_up(backend, handle, "the local copy"):
                source = "local" if found == handle.version else "deltas"
                backend.restored_bytes.add_files("local", size)
            else:
                backend.close()
                emptied = attrs.evolve(parameters, reuse_versions=frozenset())
                backend = create_backend(factory, emptied)
                source = self._restored(backend)
            self._start(backend)
        except BaseException:
            backend.close()
            raise
        return Acquired(backend, source)

    def _caught_up(self, backend: KeyedStateBackend, handle: KeyedStateHandle, what: str) -> bool:
        """Apply deltas to `backend` until it has the state of the snapshot `handle`.

        Return whether this has succeeded.

        Args:
            backend: a backend with the same or an older state.
            handle: the handle of the snapshot.
            what: the name of the backend's source in the log.
        """
        try:
            return catch_up(backend, handle)
        except MillpondError as error:
            self._give_up(what, str(error))
            return False

    def _give_up(self, what: str, reason: str) -> None:
        """Log the `reason` why `what`, a local copy or a cached backend, cannot be used.

        The reason is also stored in `failures`, for the error if the restore fails too.
        """
        _LOG.warning("%s: %s cannot be used: %s", self.operator, what, reason)
        self.failures.append(f"{what}: {reason}")

    def _restored(self, backend: KeyedStateBackend) -> str:
        """Restore the committed state into an empty backend; return ``Acquired.source``."""
        own = self.committed.handle
        handles = [*self.committed.sources] if own is None else [own]
        if not handles:
            return "new"
        try:
            restore_keyed(backend, handles)
        except CorruptSnapshotError as error:
            if not self.failures:
                raise
            causes = (*self.failures, f"the snapshot: {error}")
            raise RestoreError(self.operator.label, causes) from error
        if own is None:
            return "rescaled"
        backend.flush(own.version if has_keys_of(backend, own.key) else None)
        return "snapshot"

    def _start(self, backend: KeyedStateBackend) -> None:
        strategy = self.plan.config.state.snapshot.strategy
        backend.strategy(strategy).start(self.committed.handle)
