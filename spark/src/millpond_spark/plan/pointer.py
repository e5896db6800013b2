"""The pointer: the one small row per subtask that Spark's state store keeps for us.

Spark commits it with the batch, so Spark decides which attempt's snapshot counts. Everything
else is in Millpond's backend and in files under the checkpoint directory.
"""

from __future__ import annotations

import json
from typing import Any

import attrs
from millpond.format_versions import POINTER
from millpond.keygroups import KeyGroupRange
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType


@attrs.frozen
class Pointer:
    """What is committed of a subtask.

    Attributes:
        operator_uid: the operator.
        version: the unique name of the state that the batch has left.
        checkpoint_id: the batch id plus one.
        first_group, last_group: the key groups.
        handle: the snapshot's handle as JSON; empty where the operator has no state.
        figures: the metrics of the batch as JSON.
        layout: the number of the layout that the subtask ran under.
        format_version: of this row.
    """

    operator_uid: str
    version: str
    checkpoint_id: int
    first_group: int
    last_group: int
    handle: str
    figures: str
    layout: int
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

    def metrics_by_name(self) -> dict[str, Any]:
        """The metrics by name."""
        metrics: dict[str, Any] = json.loads(self.figures)
        return metrics

    def has_worked(self) -> bool:
        """Whether the subtask had rows, or timers that fired, in its last micro-batch."""
        metrics = self.metrics_by_name()
        return bool(metrics.get("rows_in", 1) or metrics.get("timers_fired", 1))

    def next_timers(self) -> tuple[int | None, int | None] | None:
        """When the subtask's next timers are due, by domain in ms; None where it was not noted."""
        noted = self.metrics_by_name().get("next_timers")
        return None if noted is None else (noted[0], noted[1])


POINTER_SCHEMA = StructType(
    [
        StructField("operator_uid", StringType()),
        StructField("version", StringType()),
        StructField("checkpoint_id", LongType()),
        StructField("first_group", IntegerType()),
        StructField("last_group", IntegerType()),
        StructField("handle", StringType()),
        StructField("figures", StringType()),
        StructField("layout", IntegerType()),
        StructField("format_version", IntegerType()),
    ]
)
