"""Retired files: what a snapshot's handle lists to be deleted, since it does without them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import attrs

from millpond.snapshots.handles import KeyedStateHandle, RetiredFile
from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = ["with_retired", "without_outdated"]

_LOG = logging.getLogger("millpond.checkpoint")

_UNDELETABLE = 20
"""So many files that cannot be deleted are tried again, and stay in the handle's list, at most."""

_LEFT = (
    "%s: %d more files cannot be deleted, and are not tried again: give the right to delete there, "
    "and let `millpond checkpoint gc` delete them"
)


def with_retired(made: KeyedStateHandle, before: KeyedStateHandle | None) -> KeyedStateHandle:
    """``made``, whose list of retired files has what ``before`` has beyond its files."""
    if before is None or before.storage != made.storage:
        return made
    used = made.paths | {made.metadata, ""}
    retired = {file.path: file for file in (*made.retired, *before.retired)}
    for path in sorted(before.paths | {before.metadata}):
        retired.setdefault(path, RetiredFile(path, made.checkpoint_id))
    return attrs.evolve(
        made, retired=tuple(file for path, file in retired.items() if path not in used)
    )


def without_outdated(
    handle: KeyedStateHandle, limit: int, needed: frozenset[str], folder: str
) -> KeyedStateHandle:
    """Delete the retired files that are of no more use, and return the handle without them.

    The list comes from a file, so only what lies in our own folder, and is not in use, goes. The
    last few files that cannot be deleted stay in the list.

    Args:
        handle: the confirmed snapshot.
        limit: files go that the snapshot with this number, and all after it, do without.
        needed: what stays in any case.
        folder: where all snapshots of these key groups lie.
    """
    if handle.storage is None:
        return handle
    outdated = {f.path: f.checkpoint_id for f in handle.retired if f.checkpoint_id <= limit}
    gone = outdated.keys() - needed
    if not gone:
        return handle
    in_use = handle.needed_paths | {handle.metadata}
    storage = handle.storage
    failed = [path for path in sorted(gone - in_use) if not _is_gone(storage, path, folder)]
    kept = _tried_again(failed, outdated, folder)
    return attrs.evolve(
        handle,
        retired=tuple(file for file in handle.retired if file.path not in gone - kept),
        history=tuple(file for file in handle.history if file.path not in gone),
    )


def _is_gone(storage: CheckpointStorage, path: str, folder: str) -> bool:
    """Delete a file that was retired; False where it has to be tried again."""
    if path.rpartition("/")[0] == folder:
        return storage.delete_if_possible(path)
    _LOG.warning("%s: not deleted, for it is in another subtask's folder", path)
    return True


def _tried_again(failed: list[str], retired: Mapping[str, int], folder: str) -> set[str]:
    """Those files that stay in the list, for they cannot be deleted now: the newest ones.

    Where nothing can be deleted, the list would grow, and with it what each batch tries.
    """
    by_age = sorted(failed, key=lambda path: (retired[path], path))
    if len(failed) > _UNDELETABLE:
        _LOG.warning(_LEFT, folder, len(failed) - _UNDELETABLE)
    return set(by_age[-_UNDELETABLE:])
