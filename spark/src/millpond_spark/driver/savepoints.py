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

    A subtask that has run under the layout has a pointer to its own snapshot. The state of a
    subtask that has not run yet is in the snapshots from which the layout started.

    Args:
        pointers: the operator's pointers in one batch.
        layout: the division of the key groups in that batch.
        storage: the storage of the snapshots.
        limits: how large a file with raw keyed state may be.

    Raises:
        CorruptSnapshotError: a file with raw keyed state cannot be read, or is beyond the limits.
        RestoreError: a subtask has not run since the operator was started from a savepoint, a
            pointer is of another division, or the query was not stopped for ``rescale``.
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
    """Return the snapshots that hold the committed state of a query's operators, by uid.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        snapshots: the storage of the query's snapshots.
        batch_id: a retained batch; None for the last committed one.
        limits: the limits on the sizes of files that are read.

    Raises:
        StorageAccessError: the storage has snapshots of other queries only.
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
    """Return, by uid, the snapshots of another query from which a new query's operators start.

    Args:
        spark: a session.
        retained: the other query and its batch.
        snapshots: the storage of the snapshots of both queries.
        limits: the limits on the sizes of files that are read.

    Raises:
        RestoreError: Spark does not have the batch, or the storage does not have the snapshots.
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
    """Write a savepoint of a query, which may be running and is not disturbed.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        target: a directory or URI for the savepoint.
        snapshots: the directory of the query's snapshots; by default that of the session's
            ``spark.millpond.checkpoint.dir``.
        batch_id: a batch that Spark still has; the last committed one by default.

    Raises:
        ConfigError: Spark cannot read the checkpoint, or does not have that batch; or the target is
            within the query's checkpoint or its snapshots.
        DirectoryNotEmptyError: the target holds files.
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
        snapshots: the directory that the caller names; by default the session's.
        call: the user's call, for errors.
        places: other directories that the user's call reads or writes.
    """
    check_type("snapshots", snapshots, str | None)
    config = spark_configuration(spark, *places, snapshots or "")
    directory = snapshots or config.checkpoint.dir
    if directory is None:
        reason = "name the query's snapshots here, or as spark.millpond.checkpoint.dir"
        raise ConfigError("snapshots", reason, call)
    return config, get_registry(config.plugins).storage(directory, config)
