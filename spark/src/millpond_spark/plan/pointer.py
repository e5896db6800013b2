"""Pointers: rows in Spark's state store that name the committed snapshots of subtasks.

Each subtask of an operator has one pointer, a small row. Spark commits it together with the batch.
If a task runs several times, Spark commits the pointer of one attempt, and only the snapshot of
this attempt counts. All other state is in Millpond's backend and in files under the checkpoint
directory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import attrs
from millpond.arguments import INT64, check_text, check_type, check_within
from millpond.errors import ConfigError, CorruptSnapshotError
from millpond.format_versions import POINTER
from millpond.keygroups import KeyGroupRange
from millpond.plugins import get_registry
from millpond.snapshots.spark_checkpoint import METADATA, parse_query_id
from millpond.storage.checkpoint_storage import CheckpointStorage
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from typing_extensions import override

from millpond_spark.session.session import check_session, spark_configuration
from millpond_spark.values.schemas import brief_reason


@attrs.frozen
class Pointer:
    """A row of Spark's state store that names the committed snapshot of a subtask.

    Attributes:
        operator_uid: the operator's uid.
        version: the unique name of the subtask's state after the batch.
        checkpoint_id: the batch id plus one.
        first_group, last_group: the first and the last key group of the subtask.
        handle: the snapshot's handle as JSON; empty if the subtask has no state.
        metrics: the subtask's metrics in the batch as JSON.
        layout: the number of the layout (see ``plan/layout.py``) under which the subtask ran.
        query: the query's id.
        has_worked: whether the subtask had rows, or timers that fired.
        next_event_timer, next_clock_timer: the times in ms of the next event-time timer and of the
            next processing-time timer; None without a timer.
        watermark: the watermark in ms after the subtask's last batch; None if there was none.
        last_row: the processing time in ms of the last row. It and the next two attributes are None
            without an ``idle_timeout``.
        highest_event_time: the highest event time in ms of the subtask's rows; None if there was
            none.
        run: the id of the query's run.
        format_version: the version of the row's format.
    """

    operator_uid: str
    version: str
    checkpoint_id: int
    first_group: int
    last_group: int
    handle: str
    metrics: str
    layout: int
    query: str = ""
    has_worked: bool = True
    next_event_timer: int | None = None
    next_clock_timer: int | None = None
    watermark: int | None = None
    last_row: int | None = None
    highest_event_time: int | None = None
    run: str | None = None
    format_version: int = attrs.field(factory=lambda: POINTER.version)

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups of the subtask that wrote the pointer."""
        return KeyGroupRange(self.first_group, self.last_group)

    @classmethod
    def from_row(cls, row: Any) -> Pointer:
        """Return the pointer in `row`, a row of Spark's state store.

        Raises:
            ApiVersionError: a newer Millpond has written the row.
        """
        pointer = cls(*row)
        POINTER.check(pointer.format_version, f"of {pointer.operator_uid!r}")
        return pointer


POINTER_SCHEMA = T.StructType(
    [
        T.StructField("operator_uid", T.StringType()),
        T.StructField("version", T.StringType()),
        T.StructField("checkpoint_id", T.LongType()),
        T.StructField("first_group", T.IntegerType()),
        T.StructField("last_group", T.IntegerType()),
        T.StructField("handle", T.StringType()),
        T.StructField("metrics", T.StringType()),
        T.StructField("layout", T.IntegerType()),
        T.StructField("query", T.StringType()),
        T.StructField("has_worked", T.BooleanType()),
        T.StructField("next_event_timer", T.LongType()),
        T.StructField("next_clock_timer", T.LongType()),
        T.StructField("watermark", T.LongType()),
        T.StructField("last_row", T.LongType()),
        T.StructField("highest_event_time", T.LongType()),
        T.StructField("run", T.StringType()),
        T.StructField("format_version", T.IntegerType()),
    ]
)

_CHECKPOINT = re.compile(r"(?P<location>.+)@(?P<batch>[0-9]{1,18})", re.DOTALL)


@attrs.frozen
class RetainedCheckpoint:
    """A committed batch of another query, from whose state a new query may start.

    ``checkpoint.restore`` names the batch as ``<checkpointLocation>@<batch>``. The first batch of
    the new query reads the other query's snapshots, and writes complete snapshots of its own. After
    this batch is committed, the new query no longer needs the other query's files.

    Attributes:
        location: the other query's ``checkpointLocation``.
        batch_id: the id of a batch that Spark still retains.
    """

    location: str
    batch_id: int

    @classmethod
    def from_config(cls, restore: str | None) -> Self | None:
        """Parse `restore`, a value of ``checkpoint.restore``.

        Return None if `restore` is None or names a savepoint.
        """
        found = _CHECKPOINT.fullmatch(restore or "")
        return cls(found["location"], int(found["batch"])) if found else None

    @override
    def __str__(self) -> str:
        return f"{self.location}@{self.batch_id}"


# ---------------------------------------------------------------- reading a query's checkpoint


def check_query(spark: SparkSession, checkpoint: str, batch_id: int | None) -> None:
    """Raise an error if an argument of a user's call has a wrong type or value."""
    check_session("spark", spark)
    check_type("checkpoint", checkpoint, str)
    check_text("checkpoint", checkpoint)
    if batch_id is not None:
        check_within("batch_id", batch_id, 0, INT64[1])


@contextmanager
def reading_checkpoint(checkpoint: str) -> Iterator[None]:
    """In the ``with`` block, replace Spark's errors by a ConfigError that names `checkpoint`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # up to Spark 4.1, the JVM's for paths
        reason = f"Spark cannot read it as a query's checkpoint: {brief_reason(error)}"
        raise ConfigError("checkpoint", reason, checkpoint[:200]) from error


def _metadata(spark: SparkSession, checkpoint: str) -> DataFrame:
    """Return the lines of the file ``metadata`` in `checkpoint`. The file has the query's id."""
    literally = re.sub(r"[*?\[\]{},\\]", r"\\\g<0>", checkpoint.rstrip("/"))
    return spark.read.text(f"{literally}/{METADATA}")


def _encoded_uri(spark: SparkSession, checkpoint: str) -> str:
    """Return the URI of `checkpoint` with ``%`` escapes. Spark's own paths have no escapes."""
    (file,) = _metadata(spark, checkpoint).inputFiles()
    return file.removesuffix(f"/{METADATA}")


def checkpoint_storage(spark: SparkSession, checkpoint: str) -> CheckpointStorage:
    """Return a Millpond storage for the directory `checkpoint`, a ``checkpointLocation``."""
    config = spark_configuration(spark, checkpoint)
    return get_registry(config.plugins).savepoint(_encoded_uri(spark, checkpoint), config).storage


def id_of_query(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query whose ``checkpointLocation`` is `checkpoint`.

    Raises:
        ConfigError: the directory is not the checkpoint of a query, or Spark cannot read it.
    """
    with reading_checkpoint(checkpoint):
        lines = _metadata(spark, checkpoint).collect()
    try:
        return parse_query_id("\n".join(line.value for line in lines))
    except CorruptSnapshotError as error:
        reason = f"its file {error.file!r}: {error.reason}"
        raise ConfigError("checkpoint", reason, checkpoint[:200]) from error


def readable_path(spark: SparkSession, checkpoint: str) -> str:
    """Return a path by which Spark's readers of state can read `checkpoint`.

    The readers fail if a path has characters that a URI must escape. A checkpoint with such a path
    is therefore mounted under a second path, by a Hadoop mount table in the session's
    configuration. The second path has the scheme ``millpond``, because Hadoop's ``FileContext``
    cannot read the directory by the scheme ``viewfs``.
    """
    encoded = _encoded_uri(spark, checkpoint)
    if "%" not in encoded:
        return checkpoint
    table = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    views = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    spark.conf.set("fs.millpond.impl", views)
    spark.conf.set(f"fs.viewfs.mounttable.{table}.link./checkpoint", encoded)
    return f"millpond://{table}/checkpoint"


def read_pointers(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[Pointer]:
    """Return the committed pointers of all operators of a query.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        batch_id: a batch that Spark still retains; by default the last committed batch.

    Raises:
        ConfigError: Spark cannot read the checkpoint, or does not have the batch.
    """
    _ = spark.streams.active  # up to Spark 4.2 this starts the coordinator that the reader needs
    pointers: list[Pointer] = []
    with reading_checkpoint(checkpoint):
        path = readable_path(spark, checkpoint)
        rows = spark.read.format("state-metadata").load(path).collect()
        ours = {row.operatorId for row in rows if row.operatorName == "applyInPandasWithState"}
        for operator in sorted(ours):
            reader = spark.read.format("statestore").option("operatorId", operator)
            if batch_id is not None:
                reader = reader.option("batchId", batch_id)
            state = reader.load(path).select("value.groupState.*")
            if state.schema.names == POINTER_SCHEMA.names:  # other operators are not Millpond's
                found = [row for row in state.collect() if row["operator_uid"] is not None]
                pointers += map(Pointer.from_row, found)
    return sorted(pointers, key=lambda pointer: (pointer.operator_uid, pointer.first_group))
