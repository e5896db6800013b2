"""Filling a backend from snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from millpond.checkpoint.files import read_rows
from millpond.checkpoint.handles import KeyedStateHandle, SnapshotFile
from millpond.errors import MaxParallelismError, RestoreError, StateMigrationError
from millpond.keygroups import KeyGroupRange, key_group_prefix_bytes

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend

__all__ = ["RestoreOperation", "catch_up", "restore_keyed"]


@attrs.frozen
class RestoreOperation:
    """Reads the rows of the backend's key groups from portable snapshots."""

    backend: KeyedStateBackend
    handles: Sequence[KeyedStateHandle]

    def run(self) -> None:
        """Load everything.

        Raises:
            CorruptSnapshotError: a file is damaged, missing or foreign.
            MaxParallelismError, StateMigrationError: the snapshot does not fit the backend.
        """
        for handle in self.handles:
            adopt_metadata(self.backend, handle)
            groups = handle.key_group_range.intersection(self.backend.key_group_range)
            if groups is not None:
                load_files(self.backend, handle, handle.files, groups)


def adopt_metadata(backend: KeyedStateBackend, handle: KeyedStateHandle) -> None:
    """Check that a snapshot fits a backend, and take over what it says of its states."""
    if handle.max_parallelism != backend.max_parallelism:
        raise MaxParallelismError(handle.max_parallelism, backend.max_parallelism)
    declared = backend.key_codec.snapshot()
    if handle.key != declared:
        place = backend.parameters.place or "keyed state"
        raise StateMigrationError(place, "key", str(handle.key), str(declared))
    for meta in handle.states:
        backend.restored[meta.name] = meta


def load_files(
    backend: KeyedStateBackend,
    handle: KeyedStateHandle,
    files: Iterable[SnapshotFile],
    groups: KeyGroupRange,
) -> None:
    """Apply files in their order."""
    if handle.storage is None:
        raise RestoreError(f"checkpoint {handle.checkpoint_id}", ("its handle has no storage",))
    prefix_bytes = key_group_prefix_bytes(backend.max_parallelism)
    for file in files:
        for state, rows in read_rows(handle.storage, file, groups, prefix_bytes):
            backend.load_rows(state, rows)


def restore_keyed(backend: KeyedStateBackend, handles: Sequence[KeyedStateHandle]) -> None:
    """Fill a new, empty backend; the plugin that knows the kind of handle does it.

    Raises:
        RestoreError: no plugin knows it.
    """
    hook = backend.parameters.registry.hook
    operation = hook.millpond_restore_operation(backend=backend, handles=handles)
    if operation is None:
        kinds = ", ".join(sorted({type(handle).__name__ for handle in handles}))
        raise RestoreError(backend.parameters.place, (f"no plugin can read {kinds}",))
    operation.run()


def catch_up(backend: KeyedStateBackend, handle: KeyedStateHandle) -> bool:
    """Bring a backend that is at an earlier version of a snapshot's chain up to it.

    Returns:
        False, with nothing changed, where the chain does not hold the backend's version.
    """
    if backend.version == handle.version:
        adopt_metadata(backend, handle)
        return True
    missing = handle.files_after(backend.version)
    if missing is None:
        return False
    adopt_metadata(backend, handle)
    backend.flush(None)
    load_files(backend, handle, missing, backend.key_group_range)
    backend.flush(handle.version)
    return True
