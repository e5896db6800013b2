"""Savepoints of Spark queries, running or stopped: from the committed pointers of any batch."""

from __future__ import annotations

from os import PathLike

from pyspark.sql import SparkSession

from millpond.arguments import check_type
from millpond.checkpoint import (
    CheckpointStorage,
    KeyedStateHandle,
    SavepointHandle,
)
from millpond.checkpoint.inspection.spark_checkpoint import METADATA, last_batch, parse_query_id
from millpond.checkpoint.savepoint.collect import collect_savepoint
from millpond.errors import ConfigError
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.spark.driver.layout import committed_handles, current_layout, read_layout
from millpond.spark.metrics.batch_metrics import check_query, read_pointers, reading
from millpond.spark.session import spark_configuration

__all__ = ["create_savepoint", "query_handles"]


def query_handles(
    spark: SparkSession, checkpoint: str, snapshots: CheckpointStorage, batch_id: int | None = None
) -> dict[str, list[KeyedStateHandle]]:
    """The committed snapshots of a query's operators, by uid.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        snapshots: what ``spark.millpond.checkpoint.dir`` names.
        batch_id: a retained batch; the last committed one by default.
    """
    with reading(checkpoint):
        (line,) = spark.read.text(f"{checkpoint.rstrip('/')}/{METADATA}").collect()
    query = parse_query_id(line.value)
    pointers = read_pointers(spark, checkpoint, batch_id)
    registry = get_registry(spark_configuration(spark).plugins)
    at = last_batch(registry.savepoint(checkpoint).storage) if batch_id is None else batch_id
    handles = {}
    for uid in sorted({pointer.operator_uid for pointer in pointers}):
        operator = OperatorId(query, uid)
        newest = current_layout(snapshots, operator)
        if newest and newest.dropped_after is not None and newest.dropped_after < at:
            continue
        mine = [pointer for pointer in pointers if pointer.operator_uid == uid]
        layout = read_layout(snapshots, operator, max(pointer.layout for pointer in mine))
        handles[uid] = committed_handles(mine, layout, snapshots)
    return handles


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
        ConfigError: Spark cannot read the checkpoint, or has nothing of that batch.
        CorruptSnapshotError, RestoreError: the snapshots cannot be read.
    """
    check_query(spark, checkpoint, batch_id)
    check_type("target", target, str | PathLike)
    check_type("snapshots", snapshots, str | None)
    config = spark_configuration(spark)
    directory = snapshots or config.checkpoint.dir
    if directory is None:
        reason = "name the query's snapshots here, or as spark.millpond.checkpoint.dir"
        raise ConfigError("snapshots", reason, "create_savepoint(...)")
    registry = get_registry(config.plugins)
    handle = registry.savepoint(target)
    handles = query_handles(spark, checkpoint, registry.storage(directory), batch_id)
    collect_savepoint(handles, handle, registry)
    return handle
