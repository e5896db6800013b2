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
from millpond.snapshots.spark_checkpoint import METADATA, parse_query_id
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millpond_spark.plan.pointer import POINTER_SCHEMA, Pointer
from millpond_spark.session.session import check_session
from millpond_spark.values.schemas import brief_reason

_SCHEME = "millpond"
"""A scheme of our own, because ``FileContext`` cannot read such a directory by ``viewfs``."""

_WILD = re.compile(r"[*?\[\]{},\\]")


def query_metadata(spark: SparkSession, checkpoint: str) -> DataFrame:
    """Return the lines of a checkpoint's file ``metadata``; raises if Spark cannot find it."""
    literally = _WILD.sub(r"\\\g<0>", checkpoint.rstrip("/"))
    return spark.read.text(f"{literally}/{METADATA}")


def encoded_uri(spark: SparkSession, checkpoint: str) -> str:
    """Return a checkpoint's URI for our storages; in Spark's paths a ``%`` is no escape."""
    (file,) = query_metadata(spark, checkpoint).inputFiles()
    return file.removesuffix(f"/{METADATA}")


def state_place(spark: SparkSession, checkpoint: str) -> str:
    """Return the path of a checkpoint for Spark's readers of state.

    They fail for a path with characters that a URI escapes. Such a checkpoint is mounted under
    another path, by a mount table in the session's configuration.
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
    """Check the arguments that select a batch of a query."""
    check_session("spark", spark)
    check_type("checkpoint", checkpoint, str)
    check_text("checkpoint", checkpoint)
    if batch_id is not None:
        check_within("batch_id", batch_id, 0, INT64[1])


@attrs.frozen
class SubtaskMetrics:
    """A subtask's metrics of a batch.

    Attributes:
        operator_uid: the operator.
        first_group, last_group: its key groups.
        checkpoint_id: the batch id plus one.
        metrics: the metrics by name: ``rows_in``, ``rows_out``; ``open_ms``, ``process_ms``,
            ``snapshot_ms``; ``bytes_written``, ``rows_written`` to the checkpoint directory;
            ``snapshot_bytes``, the size of a restore; ``source``, the origin of the
            backend: ``new``, ``worker``, ``local``, ``deltas``, ``snapshot`` or ``rescaled``;
            ``executor`` and ``pid``, the worker process.
    """

    operator_uid: str
    first_group: int
    last_group: int
    checkpoint_id: int
    metrics: dict[str, object]


@contextmanager
def reading(checkpoint: str) -> Iterator[None]:
    """Raise ConfigError with the checkpoint's path if Spark cannot read it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # up to Spark 4.1, the JVM's for paths
        reason = f"Spark cannot read it as a query's checkpoint: {brief_reason(error)}"
        raise ConfigError("checkpoint", reason, checkpoint[:200]) from error


def id_of_query(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query of a ``checkpointLocation``."""
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
    """Yield the state of each of a query's Millpond operators, in Spark's order."""
    _ = spark.streams.active  # up to Spark 4.2 this starts the coordinator that the reader needs
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
    """Return all committed pointers of all operators of a query.

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
    """Return each subtask's metrics of the last batch in which it had rows.

    Raises:
        ConfigError: the directory is not the checkpoint of a query, Spark cannot read it, or it
            does not have the batch.
    """
    check_query(spark, checkpoint, batch_id)
    id_of_query(spark, checkpoint)  # for another directory Spark reads no state, or creates folders
    return committed_metrics(spark, checkpoint, batch_id)


def committed_metrics(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskMetrics]:
    """Return ``subtask_metrics`` of a checkpoint that is known to be a query's."""
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
