"""Translates LMDB's errors into Millpond's."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import lmdb
from millpond.errors import MillpondError, StoreAccessError, StoreDamagedError, StoreFullError
from millpond.spi import store_error

_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    UnicodeDecodeError,
)


def failure(directory: Path, error: Exception) -> MillpondError:
    """Return the error to raise for an error of LMDB in a directory."""
    place, reason = str(directory), str(error)
    if isinstance(error, _DAMAGE):
        return StoreDamagedError("lmdb", place, reason)
    if isinstance(error, (lmdb.MemoryError, lmdb.DiskError)):
        return StoreFullError("lmdb", place, reason)
    if reason.startswith("mdb_txn_commit") and os.strerror(errno.EIO) in reason:
        # LMDB reports a short write like this. It is never a read: LMDB reads through its map.
        return StoreFullError("lmdb", place, f"{reason}: the disk is full, or fails")
    cure = "The text is LMDB's own; see its documentation"
    return store_error("lmdb", place, error) or StoreAccessError("lmdb", place, reason, cure)
