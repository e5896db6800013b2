"""Savepoints of Spark queries, running or stopped: from the committed pointers of any batch."""

from __future__ import annotations

from os import PathLike

from millpond.arguments import check_type
from millpond.config import RestoreConfig
from millpond.config.origins import SPARK_PREFIX
from millpond.errors import ConfigError, CorruptSnapshotError, RestoreError, StorageAccessError
from millpond.inspection.spark_checkpoint import check_committed, last_batch
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint
from millpond.savepoints.locate import lies_within
from millpond.savepoints.savepoint_file import SavepointHandle
from millpond.snapshots.handles import KeyedStateHandle
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri
from pyspark.sql import SparkSession

from millpond_spark.driver.committed_handles import committed_handles
from millpond_spark.metrics.batch_metrics import check_query, id_of_query, read_pointers
from millpond_spark.metrics.state_place import encoded_uri
from millpond_spark.plan.find_layout import current_layout
from millpond_spark.plan.layout import read_layout
from millpond_spark.plan.retained_checkpoint import RetainedCheckpoint
from millpond_spark.session.session import spark_configuration

__all__ = ["create_savepoint", "query_handles", "retained_handles"]


def query_handles(
    spark: SparkSession,
    checkpoint: str,
    snapshots: CheckpointStorage,
    batch_id: int | None,
    limits: RestoreConfig,
) -> dict[str, list[KeyedStateHandle]]:
    """The committed snapshots of a query's operators, by uid.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        snapshots: what ``spark.millpond.checkpoint.dir`` names.
        batch_id: a retained batch; None for the last committed one.
        limits: how large what is read may be.

    Raises:
        StorageAccessError: the snapshots are those of other queries.
        CorruptSnapshotError: they cannot be read.
    """
    query = id_of_query(spark, checkpoint)
    config = spark_configuration(spark, checkpoint)
    registry = get_registry(config.plugins)
    place = registry.savepoint(encoded_uri(spark, checkpoint), config).storage
    if batch_id is not None:
        check_committed(place, batch_id, checkpoint[:200])
    pointers = read_pointers(spark, checkpoint, batch_id)
    at = last_batch(place) if batch_id is None else batch_id
    handles = {}
    for uid in sorted({pointer.operator_uid for pointer in pointers}):
        operator = OperatorId(query, uid)
        newest = current_layout(snapshots, operator)
        if newest is None:
            reason = f"it holds nothing of the query's operator {uid!r}"
            cure = f"Name what {SPARK_PREFIX}checkpoint.dir names for {checkpoint}"
            raise StorageAccessError(public_uri(snapshots.uri), reason, cure)
        if newest.dropped_after is not None and newest.dropped_after < at:
            continue
        mine = [pointer for pointer in pointers if pointer.operator_uid == uid]
        layout = read_layout(snapshots, operator, max(pointer.layout for pointer in mine))
        handles[uid] = committed_handles(mine, layout, snapshots, limits)
    return handles


def retained_handles(
    spark: SparkSession,
    retained: RetainedCheckpoint,
    snapshots: CheckpointStorage,
    limits: RestoreConfig,
) -> dict[str, list[KeyedStateHandle]]:
    """The snapshots of a query's operators that a new query starts from, by uid.

    Args:
        spark: a session.
        retained: the query and the batch.
        snapshots: what ``checkpoint.dir`` names, which must be the directory of both queries.
        limits: how large what is read may be.

    Raises:
        RestoreError: Spark does not have the batch, or the snapshots are not in the directory.
    """
    what = f"the checkpoint {retained} of {SPARK_PREFIX}checkpoint.restore"
    try:
        return query_handles(spark, retained.location, snapshots, retained.batch_id, limits)
    except ConfigError as error:
        cause = f"batch {retained.batch_id} is not to be had: {error.reason}"
        raise RestoreError(what, (cause,)) from error
    except (CorruptSnapshotError, StorageAccessError) as error:
        cause = (
            f"{error} Both queries must have the same {SPARK_PREFIX}checkpoint.dir; to move to "
            "another one, start from a savepoint"
        )
        raise RestoreError(what, (cause,)) from error


def create_savepoint(
    spark: SparkSession,
    checkpoint: str,
    target: str | PathLike[str],
    *,
    snapshots: str | None = None,
    batch_id: int | None = None,
) -> SavepointHandle:
    """Write a savepoint of a query, which may be running, without disturbing it.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        target: a directory or URI for the savepoint.
        snapshots: where the query's snapshots are; by default what the session's
            ``spark.millpond.checkpoint.dir`` names.
        batch_id: a batch that Spark still has; the last committed one by default.

    Raises:
        ConfigError: Spark cannot read the checkpoint, or has nothing of that batch; or the target
            lies where the query has its checkpoint or its snapshots.
        DirectoryNotEmptyError: the target holds files.
        CorruptSnapshotError, RestoreError, StorageAccessError: the snapshots cannot be read.
    """
    check_query(spark, checkpoint, batch_id)
    check_type("target", target, str | PathLike)
    check_type("snapshots", snapshots, str | None)
    config = spark_configuration(spark, str(target), snapshots or "")
    directory = snapshots or config.checkpoint.dir
    if directory is None:
        reason = "name the query's snapshots here, or as spark.millpond.checkpoint.dir"
        raise ConfigError("snapshots", reason, "create_savepoint(...)")
    registry = get_registry(config.plugins)
    handle = registry.savepoint(target, config)
    storage = registry.storage(directory, config)
    handles = query_handles(spark, checkpoint, storage, batch_id, config.restore)
    place = registry.savepoint(encoded_uri(spark, checkpoint), config).storage
    for name, read in ((checkpoint, place), (directory, storage)):
        if lies_within(handle.storage, read):
            reason = f"it lies in {name}, which is read for it; name another directory"
            raise ConfigError("target", reason, "create_savepoint(...)")
    collect_savepoint(handles, handle, registry, limits=config.restore)
    return handle
