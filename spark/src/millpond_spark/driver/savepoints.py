"""Savepoints of a query, and the committed snapshots from which they are written."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from millpond.arguments import check_type
from millpond.config import Config, RestoreConfig
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError, CorruptSnapshotError, RestoreError, StorageAccessError
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint
from millpond.savepoints.savepoint_file import lies_within
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.spark_checkpoint import check_committed, last_batch
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri
from pyspark.sql import SparkSession

from millpond_spark.plan.layout import Layout, current_layout, read_layout
from millpond_spark.plan.pointer import (
    Pointer,
    RetainedCheckpoint,
    check_query,
    checkpoint_storage,
    id_of_query,
    read_pointers,
)
from millpond_spark.session.session import spark_configuration


def committed_handles(
    pointers: Sequence[Pointer],
    layout: Layout,
    storage: CheckpointStorage,
    limits: RestoreConfig,
) -> list[KeyedStateHandle]:
    """Return the snapshots that hold an operator's committed state.

    If a subtask has run under `layout`, one of `pointers` names the subtask's snapshot. If it has
    not, its state is in the snapshots from which `layout` started.

    Args:
        pointers: the operator's pointers in one batch.
        layout: the division of the key groups among subtasks in that batch.
        storage: the storage of the snapshots.
        limits: limits on the sizes of files to read.

    Raises:
        CorruptSnapshotError: a file with raw keyed state cannot be read or is too large.
        RestoreError: a subtask has not run since the operator was started from a savepoint. Or a
            pointer has key groups that are not a subtask's. Or the query was not stopped before
            ``rescale``.
    """

    def error(cause: str) -> RestoreError:
        return RestoreError("the state of the subtasks", (cause,))

    own = {p.key_group_range: p for p in pointers if p.layout == layout.number}
    divided = [layout.key_groups(index) for index in range(layout.parallelism)]
    if foreign := sorted(str(groups) for groups in own.keys() - set(divided)):
        raise error(f"layout {layout.number} does not divide the key groups into {foreign[0]}")
    if any(layout.was_overtaken(pointer) for pointer in pointers):
        after = layout.settled_after
        raise error(
            f"the query was not stopped when its state was divided again after batch {after}, and "
            f"has gone on in part: start a new one from a savepoint with batch_id={after}"
        )
    handles: list[KeyedStateHandle] = []
    shares = layout.shares(limits) if set(divided) - own.keys() else []
    for index, groups in enumerate(divided):
        if groups not in own:
            if layout.savepoint:
                raise error(
                    f"subtask {index} has had no row since the start from {layout.savepoint}: "
                    f"run the query as it was until each of the {layout.parallelism} has had one"
                )
            handles += layout.sources_of(index, shares)
        elif own[groups].handle:
            handles.append(KeyedStateHandle.from_json(own[groups].handle, storage))
    return handles


def query_handles(
    spark: SparkSession,
    checkpoint: str,
    snapshots: CheckpointStorage,
    batch_id: int | None,
    limits: RestoreConfig,
) -> dict[str, list[KeyedStateHandle]]:
    """Return, by uid, the snapshots that hold the committed state of a query's operators.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        snapshots: the storage of the query's snapshots.
        batch_id: a batch that Spark still retains; None for the last committed batch.
        limits: limits on the sizes of files to read.

    Raises:
        StorageAccessError: the storage has no layout of one of the query's operators.
        CorruptSnapshotError: the snapshots cannot be read.
    """
    query = id_of_query(spark, checkpoint)
    place = checkpoint_storage(spark, checkpoint)
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
        if newest.status == "dropped" and newest.settled_after < at:
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
    """Return, by uid, the snapshots of another query from which the operators of a query start.

    Args:
        spark: a session.
        retained: the other query's checkpoint, and the batch in it.
        snapshots: the storage, which must have the snapshots of both queries.
        limits: limits on the sizes of files to read.

    Raises:
        RestoreError: Spark no longer has the batch, or the storage lacks the snapshots.
    """
    what = f"the checkpoint {retained} of {SPARK_PREFIX}checkpoint.restore"
    try:
        return query_handles(spark, retained.location, snapshots, retained.batch_id, limits)
    except ConfigError as error:
        cause = f"batch {retained.batch_id} cannot be read: {error.reason}"
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
    """Write a savepoint with the state of a query; return its handle. The query may be running.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        target: the path or URI of an empty or new directory for the savepoint.
        snapshots: the directory of the query's snapshots; by default the session's
            ``spark.millpond.checkpoint.dir``.
        batch_id: a batch that Spark still retains; by default the last committed batch.

    Raises:
        ConfigError: Spark cannot read `checkpoint`, or no longer has the batch. Or `target` is
            within `checkpoint` or within the directory of the snapshots.
        DirectoryNotEmptyError: `target` has files.
        CorruptSnapshotError, RestoreError, StorageAccessError: the snapshots cannot be read.
    """
    check_query(spark, checkpoint, batch_id)
    check_type("target", target, str | PathLike)
    config, storage = open_snapshots(spark, snapshots, "create_savepoint(...)", str(target))
    registry = get_registry(config.plugins)
    handle = registry.savepoint(target, config)
    handles = query_handles(spark, checkpoint, storage, batch_id, config.restore)
    place = checkpoint_storage(spark, checkpoint)
    for name, read in ((checkpoint, place), (public_uri(storage.uri), storage)):
        if lies_within(handle.storage, read):
            reason = f"it lies in {name}, which is read for it; name another directory"
            raise ConfigError("target", reason, "create_savepoint(...)")
    collect_savepoint(handles, handle, registry)
    return handle


def open_snapshots(
    spark: SparkSession, snapshots: str | None, call: str, *places: str
) -> tuple[Config, CheckpointStorage]:
    """Return the configuration of a session, and the storage of a query's snapshots.

    Args:
        spark: the session.
        snapshots: the directory of the snapshots; None for the session's
            ``spark.millpond.checkpoint.dir``.
        call: the user's call, for errors.
        places: other paths or URIs that the user's call reads or writes.
    """
    check_type("snapshots", snapshots, str | None)
    config = spark_configuration(spark, *places, snapshots or "")
    directory = snapshots or config.checkpoint.dir
    if directory is None:
        reason = "name the query's snapshots here, or as spark.millpond.checkpoint.dir"
        raise ConfigError("snapshots", reason, call)
    return config, get_registry(config.plugins).storage(directory, config)
