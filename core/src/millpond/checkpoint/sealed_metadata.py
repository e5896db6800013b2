"""Metadata files: handles of snapshots and Spark's layouts, as sealed JSON in a storage."""

from __future__ import annotations

from millpond.sealed_json import SealedJson
from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = ["read_sealed", "write_sealed"]

_METADATA = SealedJson("a metadata file")


def write_sealed(storage: CheckpointStorage, path: str, text: str) -> None:
    """Write a text with its digest."""
    storage.write(path, [_METADATA.seal(text)])


def read_sealed(storage: CheckpointStorage, path: str) -> str:
    """Read such a text.

    Raises:
        CorruptSnapshotError: the file is missing, damaged, or not a metadata file.
    """
    return _METADATA.unseal(storage.read_all(path), path)
