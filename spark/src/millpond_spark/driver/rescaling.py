"""Dividing the state of a stopped query anew, for starts that nothing settles."""

from __future__ import annotations

import attrs
from millpond.arguments import check_type
from millpond.config import RestoreConfig
from millpond.errors import ConfigError, RestoreError
from millpond.inspection.spark_checkpoint import last_batch_or_none
from millpond.keygroups import check_parallelism
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.snapshots.restore import joined_states
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri
from pyspark.sql import SparkSession

from millpond_spark.driver.savepoints import committed_handles
from millpond_spark.metrics.batch_metrics import (
    check_query,
    encoded_uri,
    id_of_query,
    read_pointers,
)
from millpond_spark.plan.layout import Layout, current_layout, last_counting, uids_of, write_layout
from millpond_spark.plan.layout_checks import is_fresh, require_its_past
from millpond_spark.plan.pointer import Pointer
from millpond_spark.session.session import spark_configuration


def rescale(
    spark: SparkSession, checkpoint: str, parallelism: int, *, snapshots: str | None = None
) -> None:
    """Divide the state of a stopped query among another number of subtasks.

    For queries over Spark Connect, which cannot do so when they start, as those of classic
    sessions do. The state itself is not copied: the next batch restores it divided anew.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        parallelism: the number of subtasks of each operator.
        snapshots: where the query's snapshots are; by default what the session's
            ``spark.millpond.checkpoint.dir`` names.

    Raises:
        ConfigError: Spark cannot read the checkpoint, or the parallelism is out of bounds.
        CorruptSnapshotError, RestoreError: the snapshots cannot be read.
    """
    check_query(spark, checkpoint, None)
    check_type("parallelism", parallelism, int)
    check_type("snapshots", snapshots, str | None)
    config = spark_configuration(spark, snapshots or "")
    directory = snapshots or config.checkpoint.dir
    if directory is None:
        reason = "name the query's snapshots here, or as spark.millpond.checkpoint.dir"
        raise ConfigError("snapshots", reason, "rescale(...)")
    storage = get_registry(config.plugins).storage(directory, config)
    rescale_operators(spark, checkpoint, parallelism, storage, config.restore)


def rescale_operators(
    spark: SparkSession,
    checkpoint: str,
    parallelism: int,
    storage: CheckpointStorage,
    limits: RestoreConfig,
) -> dict[str, Layout]:
    """Do what ``rescale`` says, within limits of what is read; returns the new layouts by uid."""
    query = id_of_query(spark, checkpoint)
    config = spark_configuration(spark, checkpoint)
    place = get_registry(config.plugins).savepoint(encoded_uri(spark, checkpoint), config).storage
    now = last_batch_or_none(place)
    at = -1 if now is None else now
    pointers = [] if now is None else read_pointers(spark, checkpoint, now)
    found = {}
    for uid in sorted(uids_of(storage, query) | {each.operator_uid for each in pointers}):
        operator = OperatorId(query, uid)
        mine = [each for each in pointers if each.operator_uid == uid]
        layout = divided(storage, operator, mine, parallelism, at, limits)
        if layout is not None:
            found[uid] = layout
    if not found:
        reason = (
            f"the query {query} has left nothing in {public_uri(storage.uri)}: name the directory "
            "that it began with, as spark.millpond.checkpoint.dir had it"
        )
        raise ConfigError("snapshots", reason, "rescale(...)")
    for uid, layout in found.items():
        write_layout(storage, OperatorId(query, uid), layout)
    return found


def divided(
    storage: CheckpointStorage,
    operator: OperatorId,
    pointers: list[Pointer],
    parallelism: int,
    now: int,
    limits: RestoreConfig,
) -> Layout | None:
    """The layout that follows an operator's; None where its state was dropped."""
    current = current_layout(storage, operator)
    if current is None:
        cause = (
            f"nothing of it is in {public_uri(storage.uri)}: name the directory that the query "
            "began with, as spark.millpond.checkpoint.dir had it, with --snapshots or snapshots="
        )
        raise RestoreError(f"operator {operator.uid!r}", (cause,))
    require_its_past(current, operator.uid, now)
    last = last_counting(storage, operator, current, now)
    if last is None:
        return None
    check_parallelism(last.max_parallelism, parallelism)
    following = attrs.evolve(
        last,
        number=current.number + 1,
        parallelism=parallelism,
        dropped_after=None,
        rescaled_after=now,
        begun=False,
        settled_after=now,
    )
    if is_fresh(last, now):
        return following
    sources = tuple(committed_handles(pointers, last, storage, limits))
    joined_states(f"operator {operator.uid!r}", sources)
    key = last.key if pointers or sources else None  # without state, of whatever the start has
    return attrs.evolve(following, sources=sources, savepoint="", restore=None, key=key)
