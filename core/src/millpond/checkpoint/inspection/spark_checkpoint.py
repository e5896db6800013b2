"""What a Spark query has committed, read from the files of its checkpoint, without Spark."""

from __future__ import annotations

import json

from millpond.errors import RestoreError
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri

__all__ = ["last_batch", "query_id"]


def query_id(checkpoint: CheckpointStorage) -> str:
    """The id of the query whose ``checkpointLocation`` this is."""
    return str(json.loads(checkpoint.read_all("metadata"))["id"])


def last_batch(checkpoint: CheckpointStorage) -> int:
    """The last micro-batch that the query has committed; RestoreError before the first."""
    names = [path.rpartition("/")[2] for path in checkpoint.list("commits")]
    batches = [int(name) for name in names if name.isdigit()]
    if not batches:
        raise RestoreError(public_uri(checkpoint.uri), ("the query has not committed a batch yet",))
    return max(batches)
