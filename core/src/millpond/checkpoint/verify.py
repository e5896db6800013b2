"""Checking a snapshot's files without restoring them."""

from __future__ import annotations

import base64
import hashlib

from millpond.checkpoint.files import verify_file
from millpond.checkpoint.handles import PORTABLE, KeyedStateHandle, SnapshotFile
from millpond.checkpoint.streams import StreamStateHandle
from millpond.errors import CorruptSnapshotError, RestoreError
from millpond.keygroups import key_group_prefix_bytes

__all__ = ["verify_handle"]


def verify_handle(handle: KeyedStateHandle, file: SnapshotFile) -> None:
    """Read one file of a snapshot and check size and digests.

    Raises:
        CorruptSnapshotError: it is damaged, missing or foreign.
    """
    if handle.storage is None:
        raise RestoreError(f"checkpoint {handle.checkpoint_id}", ("its handle has no storage",))
    if handle.format == PORTABLE:
        verify_file(handle.storage, file, key_group_prefix_bytes(handle.max_parallelism))
    elif file.inline:
        if hashlib.sha256(base64.b64decode(file.inline)).hexdigest() != file.digest:
            raise CorruptSnapshotError(file.path, "its digest is wrong")
    else:
        StreamStateHandle(file.path, file.size, file.digest).read(handle.storage)
