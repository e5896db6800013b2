"""Small metadata files that carry their own digest."""

from __future__ import annotations

import hashlib
import json

from millpond.errors import CorruptSnapshotError
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.untrusted import decoding, parse_json

__all__ = ["read_sealed", "write_sealed"]


def write_sealed(storage: CheckpointStorage, path: str, text: str) -> None:
    """Write a text with its digest."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    storage.write(path, [json.dumps({"sha256": digest, "content": text}).encode()])


def read_sealed(storage: CheckpointStorage, path: str) -> str:
    """Read such a text.

    Raises:
        CorruptSnapshotError: the file is missing, damaged, or nothing of the kind.
    """
    data = storage.read_all(path)
    with decoding(path, "it is not a metadata file"):
        sealed = parse_json(data)
        text, digest = sealed["content"], sealed["sha256"]
        found = hashlib.sha256(text.encode()).hexdigest()
    if found != digest:
        raise CorruptSnapshotError(path, "its digest is wrong")
    return str(text)
