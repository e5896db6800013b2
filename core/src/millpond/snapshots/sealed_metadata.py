"""Metadata files: handles of snapshots and Spark's layouts, as sealed JSON in a storage."""

from __future__ import annotations

from millpond.sealed_json import SealedJson
from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = ["read_sealed", "seal_metadata", "unseal_metadata", "write_sealed"]

_METADATA = SealedJson("a metadata file")
_LESS_IN_POINTERS = (
    "let pointers carry less, by a lower checkpoint.inline-threshold, or by files as "
    "checkpoint.storage, for a few batches"
)


def seal_metadata(text: str) -> bytes:
    """A text with its digest."""
    return _METADATA.seal(text)


def unseal_metadata(data: bytes, path: str) -> str:
    """The text of such bytes; CorruptSnapshotError where they are damaged, which names the path."""
    return _METADATA.unseal(data, path)


def write_sealed(storage: CheckpointStorage, path: str, text: str) -> None:
    """Write a text with its digest.

    Raises:
        SnapshotTooLargeError: it would have more bytes than are read again.
    """
    storage.write_all(path, seal_metadata(text), _LESS_IN_POINTERS)


def read_sealed(storage: CheckpointStorage, path: str) -> str:
    """Read such a text.

    Raises:
        CorruptSnapshotError: the file is missing, damaged, or not a metadata file.
    """
    return unseal_metadata(storage.read_all(path), path)
