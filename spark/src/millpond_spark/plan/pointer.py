"""References to committed state: a subtask's pointer, and a retained checkpoint of another query.

The pointer is the one small row per subtask in Spark's state store. Spark commits it with the
batch, so Spark decides which attempt's snapshot counts. All other state is in Millpond's backend
and in files under the checkpoint directory.
"""

from __future__ import annotations

import re
from typing import Any, Self

import attrs
from millpond.format_versions import POINTER
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.spark_checkpoint import is_spark_checkpoint
from millpond.storage.checkpoint_storage import CheckpointStorage
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)
from typing_extensions import override


@attrs.frozen
class Pointer:
    """The committed state of a subtask.

    Attributes:
        operator_uid: the operator.
        version: the unique name of the state after the batch.
        checkpoint_id: the batch id plus one.
        first_group, last_group: the key groups.
        handle: the snapshot's handle as JSON; empty if the operator has no state.
        metrics: the metrics of the batch as JSON.
        layout: the number of the layout that the subtask ran under.
        query: the query's id.
        has_worked: whether the subtask had rows, or timers that fired.
        next_event_timer, next_clock_timer: when the next event-time and the next processing-time
            timer are due, in ms; None without one.
        format_version: of this row.
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
    format_version: int = attrs.field(factory=lambda: POINTER.version)

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups of the subtask that wrote it."""
        return KeyGroupRange(self.first_group, self.last_group)

    @classmethod
    def from_row(cls, row: Any) -> Pointer:
        """Read the state row.

        Raises:
            ApiVersionError: a newer Millpond wrote it.
        """
        pointer = cls(*row)
        POINTER.check(pointer.format_version, f"of {pointer.operator_uid!r}")
        return pointer


POINTER_SCHEMA = StructType(
    [
        StructField("operator_uid", StringType()),
        StructField("version", StringType()),
        StructField("checkpoint_id", LongType()),
        StructField("first_group", IntegerType()),
        StructField("last_group", IntegerType()),
        StructField("handle", StringType()),
        StructField("metrics", StringType()),
        StructField("layout", IntegerType()),
        StructField("query", StringType()),
        StructField("has_worked", BooleanType()),
        StructField("next_event_timer", LongType()),
        StructField("next_clock_timer", LongType()),
        StructField("format_version", IntegerType()),
    ]
)

_CHECKPOINT = re.compile(r"(?P<location>.+)@(?P<batch>[0-9]{1,18})", re.DOTALL)
_ENDING = re.compile(r"@[^/@]*$")


@attrs.frozen
class RetainedCheckpoint:
    """A batch of another query, from which the operators of a new query may start.

    ``checkpoint.restore`` names it as ``<checkpointLocation>@<batch>``. Nothing is copied: the
    new query's first batch reads that batch's snapshots in place and then writes complete ones.
    After its commit, the other query's files are no longer needed.

    Attributes:
        location: the query's ``checkpointLocation``.
        batch_id: the batch, which Spark still has.
    """

    location: str
    batch_id: int

    @classmethod
    def from_config(cls, restore: str | None) -> Self | None:
        """Parse ``checkpoint.restore``; None if it names a savepoint, or nothing."""
        found = _CHECKPOINT.fullmatch(restore or "")
        return cls(found["location"], int(found["batch"])) if found else None

    @override
    def __str__(self) -> str:
        return f"{self.location}@{self.batch_id}"


def names_checkpoint(restore: str, storage: CheckpointStorage) -> bool:
    """Return whether ``checkpoint.restore`` seems to mean a query's checkpoint without a batch."""
    return _ENDING.search(restore) is not None or is_spark_checkpoint(storage)


def without_batch(restore: str) -> str:
    """Return the part of ``checkpoint.restore`` that may be a query's ``checkpointLocation``."""
    return _ENDING.sub("", restore)
