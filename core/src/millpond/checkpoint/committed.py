"""What a Spark query has committed, read from the files of its checkpoint, without Spark."""

from __future__ import annotations

import json
from os import PathLike

from millpond.checkpoint.savepoint.locate import locate_savepoint
from millpond.errors import RestoreError

__all__ = ["last_batch", "query_id"]


def query_id(checkpoint: str | PathLike[str]) -> str:
    """The id of the query whose ``checkpointLocation`` this is."""
    storage = locate_savepoint(checkpoint).storage
    return str(json.loads(storage.read_all("metadata"))["id"])


def last_batch(checkpoint: str | PathLike[str]) -> int:
    """The last micro-batch that the query has committed; RestoreError before the first."""
    storage = locate_savepoint(checkpoint).storage
    names = [path.rpartition("/")[2] for path in storage.list("commits")]
    batches = [int(name) for name in names if name.isdigit()]
    if not batches:
        raise RestoreError(str(checkpoint), ("the query has not committed a batch yet",))
    return max(batches)
