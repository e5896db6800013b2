"""Files in the checkpoint of a Spark query, read without Spark.

::

    metadata          JSON with the query's id
    commits/<batch>   one file for each micro-batch that is committed
    offsets/<batch>   one file for each micro-batch that was planned
"""

from __future__ import annotations

import json

from millpond.errors import ConfigError, CorruptSnapshotError, RestoreError
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri

METADATA = "metadata"


def is_spark_checkpoint(storage: CheckpointStorage) -> bool:
    """Return whether a directory is the ``checkpointLocation`` of a Spark query."""
    files = storage.list("")
    return METADATA in files and any(file.startswith("offsets/") for file in files)


def query_id(checkpoint: CheckpointStorage) -> str:
    """Return the id of the query whose ``checkpointLocation`` is `checkpoint`.

    Raises:
        CorruptSnapshotError: the directory does not hold the id of a query.
    """
    try:
        return parse_query_id(checkpoint.read_all(METADATA))
    except CorruptSnapshotError as error:
        where = f"{public_uri(checkpoint.uri)}/{METADATA}"
        cure = "name the checkpointLocation of a Spark query, whose file metadata holds its id"
        raise CorruptSnapshotError(where, f"{error.reason}; {cure}") from error


def parse_query_id(metadata: str | bytes) -> str:
    """Return the query id in `metadata`, the contents of a checkpoint's file ``metadata``.

    Raises:
        CorruptSnapshotError: the metadata has no query id.
    """
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptSnapshotError(METADATA, "it does not hold the id of a Spark query") from error


def last_batch(checkpoint: CheckpointStorage) -> int:
    """Return the number of the last micro-batch that the query has committed.

    Raises:
        RestoreError: the query has not committed a batch yet.
    """
    batch = last_batch_or_none(checkpoint)
    if batch is None:
        raise RestoreError(public_uri(checkpoint.uri), ("the query has not committed a batch yet",))
    return batch


def last_batch_or_none(checkpoint: CheckpointStorage) -> int | None:
    """Return the number of the last committed micro-batch, or None if none is committed yet."""
    return max(_batches(checkpoint, "commits"), default=None)


def check_committed(checkpoint: CheckpointStorage, batch: int, where: str) -> None:
    """Raise ConfigError if the query has not committed the micro-batch `batch`.

    Args:
        checkpoint: the query's ``checkpointLocation``.
        batch: the number of the micro-batch.
        where: the source of `batch`, such as an option, which the error names.
    """
    known = _batches(checkpoint, "commits")
    if batch not in known:
        there = f"there are {min(known)} to {max(known)}" if known else "there is none yet"
        raise ConfigError("batch_id", f"batch {batch} is not committed there; {there}", where)


def planned_batches(checkpoint: CheckpointStorage) -> set[int]:
    """Return the numbers of the micro-batches that the query has begun."""
    return _batches(checkpoint, "offsets")


def _batches(checkpoint: CheckpointStorage, folder: str) -> set[int]:
    """Return the numbers of the micro-batches in a log of the query."""
    names = [path.rpartition("/")[2] for path in checkpoint.list(folder)]
    return {int(name) for name in names if name.isdigit()}
