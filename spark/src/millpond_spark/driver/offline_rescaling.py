"""``rescale``: divide the state of a stopped query among another number of subtasks."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from millpond.arguments import check_type
from millpond.config import RestoreConfig
from millpond.errors import ConfigError, RestoreError
from millpond.keygroups import check_parallelism
from millpond.operator_id import OperatorId
from millpond.snapshots.restore import joined_states
from millpond.snapshots.spark_checkpoint import last_batch_or_none
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri
from pyspark.sql import SparkSession

from millpond_spark.driver.savepoints import committed_handles, open_snapshots
from millpond_spark.plan.layout import Layout, current_layout, last_begun, query_uids, write_layout
from millpond_spark.plan.layout_decision import Step, decide_layout
from millpond_spark.plan.pointer import (
    Pointer,
    check_query,
    checkpoint_storage,
    id_of_query,
    read_pointers,
)


def rescale(
    spark: SparkSession, checkpoint: str, parallelism: int, *, snapshots: str | None = None
) -> None:
    """Divide the state of a stopped query among another number of subtasks.

    A query over Spark Connect needs this call before it can start with another parallelism. A query
    of a classic session does not need it. ``rescale`` copies no state. In the query's next
    micro-batch each new subtask restores its key groups from the old subtasks' snapshots.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        parallelism: the new number of subtasks of each operator.
        snapshots: the directory of the query's snapshots; by default the session's
            ``spark.millpond.checkpoint.dir``.

    Raises:
        ConfigError: Spark cannot read `checkpoint`, or `parallelism` is out of bounds.
        CorruptSnapshotError, RestoreError: the snapshots cannot be read.
    """
    check_query(spark, checkpoint, None)
    check_type("parallelism", parallelism, int)
    config, storage = open_snapshots(spark, snapshots, "rescale(...)")
    rescale_operators(spark, checkpoint, parallelism, storage, config.restore)


def rescale_operators(
    spark: SparkSession,
    checkpoint: str,
    parallelism: int,
    storage: CheckpointStorage,
    limits: RestoreConfig,
) -> dict[str, Layout]:
    """Write a layout with the new parallelism for each operator of a query.

    Returns:
        The new layouts by uid. Their status is ``prepared``, because no batch has run under them.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        parallelism: the new number of subtasks of each operator.
        storage: the storage of the query's snapshots.
        limits: limits on the sizes of files to read.
    """
    query = id_of_query(spark, checkpoint)
    now = last_batch_or_none(checkpoint_storage(spark, checkpoint))
    pointers = [] if now is None else read_pointers(spark, checkpoint, now)
    after = -1 if now is None else now
    found = {}
    for uid in sorted(query_uids(storage, query) | {each.operator_uid for each in pointers}):
        mine = [each for each in pointers if each.operator_uid == uid]
        layout = prepared_layout(storage, OperatorId(query, uid), mine, parallelism, after, limits)
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


def prepared_layout(
    storage: CheckpointStorage,
    operator: OperatorId,
    pointers: Sequence[Pointer],
    parallelism: int,
    now: int,
    limits: RestoreConfig,
) -> Layout | None:
    """Return the layout for an operator's next run; None if the operator's state was dropped.

    Args:
        storage: the storage of the query's snapshots.
        operator: the operator.
        pointers: the operator's committed pointers.
        parallelism: the new number of subtasks.
        now: the id of the last committed batch; -1 if there is none.
        limits: limits on the sizes of files to read.
    """
    current = current_layout(storage, operator)
    if current is None:
        cause = (
            f"nothing of it is in {public_uri(storage.uri)}: name the directory that the query "
            "began with, as spark.millpond.checkpoint.dir had it, with --snapshots or snapshots="
        )
        raise RestoreError(f"operator {operator.uid!r}", (cause,))
    last = last_begun(storage, operator, current, now)
    declared = attrs.evolve(last or current, parallelism=parallelism, status="prepared")
    step, layout = decide_layout(operator.uid, current, last, declared, now, lambda: bool(pointers))
    if last is None:
        return None
    check_parallelism(last.max_parallelism, parallelism)
    layout = attrs.evolve(layout, settled_after=now)
    if step is Step.CARRY:
        return layout
    sources = tuple(committed_handles(pointers, last, storage, limits))
    joined_states(f"operator {operator.uid!r}", sources)
    key = last.key if pointers or sources else None  # the next start may declare any keys
    return attrs.evolve(layout, sources=sources, savepoint="", key=key)
