"""Filling a backend from snapshots."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

import attrs

from millpond.backend.key_layout import KeyLayout
from millpond.backend.key_migration import KeyRewrite
from millpond.backend.keyed import KeyedStateBackend
from millpond.backend.restore_target import RestoreTarget
from millpond.errors import RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.savepoints.savepoint_file import SavepointHandle
from millpond.snapshots.handles import KeyedStateHandle, SnapshotFile
from millpond.snapshots.restore_checks import adopt_metadata, joined_states, load_adopted
from millpond.snapshots.row_file_reader import read_rows

_LOG = logging.getLogger("millpond.restore")
_PROGRESS_SECONDS = 5.0


class _Progress:
    """Logs how far a long restore has come, every few seconds."""

    def __init__(self, operator: OperatorId, total: int) -> None:
        self._operator = operator
        self._total = total
        self._done = 0
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def add(self, size: int) -> None:
        self._done += size
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            done, total = self._done / 1e6, self._total / 1e6
            _LOG.warning("%s: restored %.0f of about %.0f MB", self._operator.label, done, total)


@attrs.frozen
class RestoreOperation:
    """Reads the rows of the backend's key groups from portable snapshots."""

    backend: RestoreTarget
    handles: Sequence[KeyedStateHandle]

    def run(self) -> None:
        """Load everything.

        Raises:
            CorruptSnapshotError: a file is damaged, missing or foreign.
            MaxParallelismError, StateMigrationError: the snapshot does not fit the backend.
        """
        progress = _Progress(self.backend.parameters.operator, sum(h.size for h in self.handles))
        for handle in self.handles:
            adopted = adopt_metadata(
                self.backend, handle.max_parallelism, handle.key, handle.states
            )
            groups = handle.key_group_range.intersection(self.backend.key_group_range)
            if groups is not None:
                load_files(self.backend, handle, handle.files, groups, adopted, progress.add)


def load_files(
    backend: RestoreTarget,
    handle: KeyedStateHandle,
    files: Iterable[SnapshotFile],
    groups: KeyGroupRange,
    rewrite: KeyRewrite | None = None,
    report: Callable[[int], object] = int,
) -> None:
    """Apply files in their order, with keys of an older type rewritten."""
    if handle.storage is None:
        raise RestoreError(f"checkpoint {handle.checkpoint_id}", ("its handle has no storage",))
    layout = KeyLayout(backend.max_parallelism)
    metas = {meta.name: meta for meta in handle.states}
    limits = backend.parameters.config.restore
    for file in files:
        for state, rows in read_rows(handle.storage, file, groups, layout, set(metas), limits):
            report(load_adopted(backend, "checkpoint", metas[state], rows, rewrite))


def restore_keyed(
    backend: RestoreTarget, handles: Sequence[KeyedStateHandle | SavepointHandle]
) -> None:
    """Fill a new, empty backend; for each kind of handle, the plugin that knows it.

    A native format comes first, for it may become the backend's store.

    Raises:
        RestoreError: no plugin knows a kind.
    """
    backend.expect_outside_bytes()
    parts = [handle for handle in handles if isinstance(handle, KeyedStateHandle)]
    for name, meta in joined_states(backend.parameters.operator.label, parts).items():
        backend.restored.setdefault(name, meta)
    kinds: dict[str, list[KeyedStateHandle | SavepointHandle]] = {}
    for handle in handles:
        kinds.setdefault(handle.format, []).append(handle)
    hook = backend.parameters.registry.hook
    for kind in sorted(kinds, key=lambda kind: kind in ("rows", "savepoint")):
        operation = hook.millpond_restore_operation(backend=backend, handles=kinds[kind])
        if operation is None:
            cause = f"no installed plugin reads snapshots of the format {kind!r}"
            raise RestoreError(backend.parameters.operator.label, (cause,))
        operation.run()


def catch_up(backend: KeyedStateBackend, handle: KeyedStateHandle) -> bool:
    """Bring a backend that is at an earlier version of a snapshot's chain up to it.

    Returns:
        False where the chain does not hold the backend's version, its keys are of an older type, or
        a state has times in one of the two alone; the rows are what they were.

    Raises:
        CorruptSnapshotError: a delta is damaged or gone; the backend is of no use any more.
    """
    missing = [] if backend.version == handle.version else handle.files_after(backend.version)
    held = backend.restored
    if missing is None or any(held.get(meta.name, meta).ttl != meta.ttl for meta in handle.states):
        return False
    backend.expect_outside_bytes()
    if adopt_metadata(backend, handle.max_parallelism, handle.key, handle.states) is not None:
        return False
    if backend.version != handle.version:
        backend.flush(None)
        load_files(backend, handle, missing, backend.key_group_range)
        backend.flush(handle.version)
    return True
