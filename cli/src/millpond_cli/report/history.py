"""The past of an operator: sizes of retained checkpoints and their states, metrics of batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
from millpond.errors import MillpondError
from millpond.operator_id import OperatorId
from millpond.snapshots.catalog import Catalog, complete_parts

from millpond_cli.inspection.orphans import delete_file, orphans
from millpond_cli.inspection.stored_operator import StoredOperator, operator_of_parts
from millpond_cli.report.state_figures import OperatorFigures, SizeFigures, operator_figures

if TYPE_CHECKING:
    from millpond_spark.metrics.batch_metrics import OperatorMetrics
    from pyspark.sql import SparkSession

POINTS = 50
"""The largest number of checkpoints whose sizes the report shows."""


@attrs.frozen
class CheckpointSize:
    """The number of bytes that a restore of a retained checkpoint reads."""

    checkpoint_id: int
    bytes: int


@attrs.frozen
class StatesAt:
    """The sizes of an operator's states at a checkpoint, by name."""

    checkpoint_id: int
    states: dict[str, SizeFigures]

    @classmethod
    def from_figures(cls, figures: OperatorFigures) -> StatesAt:
        """Return the sizes of the states in the figures of a checkpoint."""
        sizes = {
            each.name: SizeFigures(rows=each.rows, keys=each.keys, bytes=each.bytes)
            for each in figures.states
        }
        return cls(figures.checkpoint_id, sizes)


@attrs.frozen
class BatchFigures:
    """The metrics of an operator in one micro-batch.

    Attributes:
        batch: the id of the micro-batch.
        rows_in, rows_out: the rows of all subtasks.
        most_rows_in: the rows of the subtask that got the most.
        open_ms, process_ms, snapshot_ms: the times of the slowest subtask.
        bytes_written: the size of the snapshots that the batch wrote.
        sources: the numbers of subtasks by the source of their state, such as ``worker``.
        failed_attempts: the failed attempts of the tasks, before those that succeeded.
    """

    batch: int
    rows_in: int
    most_rows_in: int
    rows_out: int
    open_ms: float
    process_ms: float
    snapshot_ms: float
    bytes_written: int
    sources: dict[str, int]
    failed_attempts: int


def checkpoint_sizes(catalog: Catalog, operator: OperatorId) -> list[CheckpointSize]:
    """Return the sizes of the operator's retained checkpoints that can be restored."""
    mine = [each for each in catalog.subtasks if each.operator == operator]
    ids = sorted({handle.checkpoint_id for each in mine for handle in each.handles})
    step = -(-len(ids) // POINTS) or 1
    found = []
    for checkpoint_id in ids[::-step][::-1]:
        try:
            parts = complete_parts(catalog, operator, checkpoint_id)
        except MillpondError:  # the report shows the checkpoints that are complete
            continue
        found.append(CheckpointSize(checkpoint_id, sum(part.size for part in parts)))
    return found


def earlier_states(
    catalog: Catalog, stored: StoredOperator, sizes: Sequence[CheckpointSize], count: int
) -> Iterator[StatesAt]:
    """Read the sizes of an operator's states at earlier checkpoints, the oldest one first.

    Args:
        catalog: the directory.
        stored: the operator; its checkpoint is not read again.
        sizes: the retained checkpoints.
        count: the largest number of checkpoints to read; they are spread evenly.
    """
    ids = [each.checkpoint_id for each in sizes if each.checkpoint_id < stored.checkpoint_id]
    chosen = [ids[number * len(ids) // count] for number in range(count)] if ids else []
    for checkpoint_id in sorted(set(chosen)):
        try:
            parts = complete_parts(catalog, stored.operator, checkpoint_id)
            earlier = operator_of_parts(stored.operator, parts, stored.registry, stored.limits)
            yield StatesAt.from_figures(operator_figures(earlier, now=0))
        except MillpondError:  # the running query has deleted the checkpoint
            continue


@attrs.frozen
class StaleFiles:
    """The files in a checkpoint directory that no retained checkpoint needs."""

    files: int
    bytes: int


def stale_files(catalog: Catalog) -> StaleFiles:
    """Return the number and the size of the files that ``millpond checkpoint gc`` would delete.

    If metadata cannot be read, no file counts, because a snapshot may need it.
    """
    if catalog.broken:
        return StaleFiles(0, 0)
    sizes = [delete_file(catalog.storage, path, dry_run=True) for path in orphans(catalog)]
    found = [size for size in sizes if size is not None]
    return StaleFiles(len(found), sum(found))


def batch_figures(
    spark: SparkSession, checkpoint: str, query: str, batches: range
) -> dict[str, list[BatchFigures]]:
    """Return the metrics of a query's batches as a dict from operator uid to metrics.

    The result leaves out batches whose files Spark has deleted.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        query: the query's id.
        batches: the last committed batches, the newest one first.
    """
    from millpond_spark.metrics.batch_metrics import (  # noqa: PLC0415 - needs pyspark
        committed_metrics,
        sum_metrics,
    )

    found: dict[str, list[BatchFigures]] = {}
    for batch in batches:
        try:
            subtasks = committed_metrics(spark, checkpoint, batch)
        except MillpondError:  # Spark no longer retains the batch
            break
        for operator in sum_metrics(subtasks, batch, query):
            found.setdefault(operator.operator_uid, []).insert(0, _figures(operator))
    return found


def _figures(operator: OperatorMetrics) -> BatchFigures:
    metrics = operator.metrics
    sources = Counter(str(each.metrics["source"]) for each in operator.by_subtask)
    return BatchFigures(
        batch=operator.batch_id,
        rows_in=int(metrics["rows_in"]),
        most_rows_in=max(int(str(each.metrics["rows_in"])) for each in operator.by_subtask),
        rows_out=int(metrics["rows_out"]),
        open_ms=round(metrics["open_ms"], 1),
        process_ms=round(metrics["process_ms"], 1),
        snapshot_ms=round(metrics["snapshot_ms"], 1),
        bytes_written=int(metrics["bytes_written"]),
        sources=dict(sorted(sources.items())),
        failed_attempts=int(metrics["failed_attempts"]),
    )
