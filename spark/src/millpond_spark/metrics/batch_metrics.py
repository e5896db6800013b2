"""The metrics of subtasks in a query's last batch, read from Spark's state."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from millpond.arguments import INT64, check_text, check_type, check_within
from millpond.errors import ConfigError, CorruptSnapshotError
from millpond.inspection.spark_checkpoint import METADATA, parse_query_id
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millpond_spark.plan.pointer import POINTER_SCHEMA, Pointer
from millpond_spark.session.session import check_session
from millpond_spark.values.schemas import brief_reason

_SCHEME = "millpond"
"""One of our own, for ``viewfs`` fails at such a directory where it is read by ``FileContext``."""

_WILD = re.compile(r"[*?\[\]{},\\]")


def query_metadata(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The lines of a checkpoint's file ``metadata``; Spark looks for it at once."""
    literally = _WILD.sub(r"\\\g<0>", checkpoint.rstrip("/"))
    return spark.read.text(f"{literally}/{METADATA}")


def encoded_uri(spark: SparkSession, checkpoint: str) -> str:
    """A checkpoint's URI as our storages read it; in Spark's paths a ``%`` is itself."""
    (file,) = query_metadata(spark, checkpoint).inputFiles()
    return file.removesuffix(f"/{METADATA}")


def state_place(spark: SparkSession, checkpoint: str) -> str:
    """The path of a checkpoint that Spark's readers of state are to be given.

    It is the checkpoint's own where that has no such character, else one of a mount table that
    the session's configuration then has.
    """
    encoded = encoded_uri(spark, checkpoint)
    if "%" not in encoded:
        return checkpoint
    table = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    views = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    spark.conf.set(f"fs.{_SCHEME}.impl", views)
    spark.conf.set(f"fs.viewfs.mounttable.{table}.link./checkpoint", encoded)
    return f"{_SCHEME}://{table}/checkpoint"


_OPERATOR = "applyInPandasWithState"


def check_query(spark: SparkSession, checkpoint: str, batch_id: int | None) -> None:
    """Check the arguments that say which batch of which query is meant."""
    check_session("spark", spark)
    check_type("checkpoint", checkpoint, str)
    check_text("checkpoint", checkpoint)
    if batch_id is not None:
        check_within("batch_id", batch_id, 0, INT64[1])


@attrs.frozen
class SubtaskMetrics:
    """What a subtask reports of a batch.

    Attributes:
        operator_uid: the operator.
        first_group, last_group: its key groups.
        checkpoint_id: the batch id plus one.
        metrics: the metrics by name: ``rows_in``, ``rows_out``; ``open_ms``, ``process_ms``,
            ``snapshot_ms``; ``bytes_written``, ``rows_written`` to the checkpoint directory;
            ``snapshot_bytes``, what a restore would read; ``source``, where the backend came
            from: ``new``, ``worker``, ``local``, ``deltas``, ``snapshot`` or ``rescaled``;
            ``executor`` and ``pid``, where it ran.
    """

    operator_uid: str
    first_group: int
    last_group: int
    checkpoint_id: int
    metrics: dict[str, object]


@contextmanager
def reading(checkpoint: str) -> Iterator[None]:
    """Raise ConfigError with the checkpoint's path where Spark cannot read it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # the JVM's own: up to Spark 4.1, of paths
        reason = f"Spark cannot read it as that of a query: {brief_reason(error)}"
        raise ConfigError("checkpoint", reason, checkpoint[:200]) from error


def id_of_query(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query whose ``checkpointLocation`` this is."""
    with reading(checkpoint):
        lines = query_metadata(spark, checkpoint).collect()
    try:
        return parse_query_id("\n".join(line.value for line in lines))
    except CorruptSnapshotError as error:
        reason = f"its file {error.file!r}: {error.reason}"
        raise ConfigError("checkpoint", reason, checkpoint[:200]) from error


def _states(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> Iterator[DataFrame]:
    """The state of each of a query's operators that is ours, in Spark's order."""
    _ = spark.streams.active  # up to Spark 4.2 it starts what a reader of state asks for stores
    with reading(checkpoint):
        place = state_place(spark, checkpoint)
        metadata = spark.read.format("state-metadata").load(place).collect()
    for operator in sorted({row.operatorId for row in metadata if row.operatorName == _OPERATOR}):
        reader = spark.read.format("statestore").option("operatorId", operator)
        if batch_id is not None:
            reader = reader.option("batchId", batch_id)
        with reading(checkpoint):
            state = reader.load(place)
        if state.select("value.groupState.*").schema.names == POINTER_SCHEMA.names:
            yield state  # the others are not Millpond's


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
        with reading(checkpoint):
            rows = state.select("value.groupState.*").collect()
        pointers += [Pointer.from_row(row) for row in rows if row["operator_uid"] is not None]
    return sorted(pointers, key=lambda pointer: (pointer.operator_uid, pointer.first_group))


def subtask_metrics(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskMetrics]:
    """The metrics that each subtask reported of the last batch in which it had rows.

    Raises:
        ConfigError: it is not the checkpoint of a query, Spark cannot read it, or it has nothing
            of that batch.
    """
    check_query(spark, checkpoint, batch_id)
    id_of_query(spark, checkpoint)  # of no query Spark reads no state, or makes folders
    return committed_metrics(spark, checkpoint, batch_id)


def committed_metrics(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskMetrics]:
    """The same of a query that is known to be there."""
    return [
        SubtaskMetrics(
            pointer.operator_uid,
            pointer.first_group,
            pointer.last_group,
            pointer.checkpoint_id,
            json.loads(pointer.metrics),
        )
        for pointer in read_pointers(spark, checkpoint, batch_id)
    ]
