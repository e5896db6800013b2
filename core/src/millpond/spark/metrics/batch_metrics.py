"""The figures of the last batch, per subtask, read on the driver from the committed pointers."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from pyspark.sql import DataFrame, SparkSession

from millpond.spark.driver.pointer import POINTER_SCHEMA, Pointer

__all__ = ["SubtaskFigures", "keeps_timeouts", "read_pointers", "subtask_figures"]

_OPERATOR = "applyInPandasWithState"


@attrs.frozen
class SubtaskFigures:
    """What a subtask reports of a batch.

    Attributes:
        operator_uid: the operator.
        first_group, last_group: its key groups.
        checkpoint_id: the batch id plus one.
        figures: ``rows_in``, ``rows_out``; ``open_ms``, ``process_ms``, ``snapshot_ms``;
            ``bytes_written``, ``rows_written`` to the checkpoint directory;
            ``snapshot_bytes``, what a restore would read; ``source``, how the backend was
            got: ``new``, ``worker``, ``local``, ``deltas`` or ``snapshot``;
            ``executor`` and ``pid``, where it ran.
    """

    operator_uid: str
    first_group: int
    last_group: int
    checkpoint_id: int
    figures: dict[str, object]


def _states(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> Iterator[DataFrame]:
    """The state of each of a query's operators that is ours, in Spark's order."""
    metadata = spark.read.format("state-metadata").load(checkpoint).collect()
    for operator in sorted({row.operatorId for row in metadata if row.operatorName == _OPERATOR}):
        reader = spark.read.format("statestore").option("operatorId", operator)
        if batch_id is not None:
            reader = reader.option("batchId", batch_id)
        state = reader.load(checkpoint)
        if state.select("value.groupState.*").schema.names == POINTER_SCHEMA.names:
            yield state  # others are somebody else's applyInPandasWithState


def keeps_timeouts(spark: SparkSession, checkpoint: str, place: int) -> bool:
    """Whether Spark's state of the operator at a place has a column for the next timeout."""
    state = list(_states(spark, checkpoint))[place]
    return "timeoutTimestamp" in state.select("value.*").schema.names


def read_pointers(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[Pointer]:
    """All committed pointers of a query, of all its operators.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        batch_id: a retained batch; the last committed one by default.
    """
    pointers = []
    for state in _states(spark, checkpoint, batch_id):
        rows = state.select("value.groupState.*").collect()
        pointers += [Pointer.from_row(row) for row in rows if row["operator_uid"] is not None]
    return sorted(pointers, key=lambda pointer: (pointer.operator_uid, pointer.first_group))


def subtask_figures(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskFigures]:
    """The figures that each subtask reported of the last batch in which it had rows."""
    return [
        SubtaskFigures(
            pointer.operator_uid,
            pointer.first_group,
            pointer.last_group,
            pointer.checkpoint_id,
            pointer.figures_dict(),
        )
        for pointer in read_pointers(spark, checkpoint, batch_id)
    ]
