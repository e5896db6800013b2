"""Finding a savepoint by a path, a URI, a storage or a handle."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from os import PathLike, fspath

from millpond.config import RestoreConfig
from millpond.savepoints.savepoint_file import SavepointHandle
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import LocalStorage, local_uri

__all__ = ["lies_within", "locate_savepoint"]


def locate_savepoint(
    place: str | PathLike[str] | CheckpointStorage | SavepointHandle,
    open_uri: Callable[[str], CheckpointStorage],
    limits: RestoreConfig = RestoreConfig(),
) -> SavepointHandle:
    """The handle of a savepoint whose root is a directory, a URI or a storage's root.

    Args:
        place: the path, URI, storage or handle.
        open_uri: opens a storage.
        limits: what a writer of the savepoint must not exceed.
    """
    if isinstance(place, SavepointHandle):
        return place
    if isinstance(place, CheckpointStorage):
        return SavepointHandle(0, "", place, limits=limits)
    text = fspath(place)
    scheme = text.partition(":")[0]
    is_uri = ":" in text and "/" not in scheme and len(scheme) > 1
    uri = text if is_uri else local_uri(text)
    return SavepointHandle(0, "", open_uri(uri), limits=limits)


def lies_within(target: CheckpointStorage, root: CheckpointStorage) -> bool:
    """Whether a storage's place is that of another, or below it, wherever local links lead."""
    inner, outer = _normal(target), _normal(root)
    return inner == outer or inner.startswith(f"{outer}/")


def _normal(storage: CheckpointStorage) -> str:
    if isinstance(storage, LocalStorage):
        return os.path.realpath(storage.directory)
    return posixpath.normpath(storage.uri)
