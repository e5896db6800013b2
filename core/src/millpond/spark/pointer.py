"""The pointer: the one small row per subtask that Spark's state store keeps for us.

Spark commits it with the batch, so Spark decides which attempt's snapshot counts. Everything
else is in Millpond's backend and in files under the checkpoint directory.
"""

from __future__ import annotations

import json
from typing import Any

import attrs
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from millpond.errors import ApiVersionError, RestoreError
from millpond.keygroups import KeyGroupRange

__all__ = ["POINTER_SCHEMA", "Pointer"]

POINTER_VERSION = 1


@attrs.frozen
class Pointer:
    """What is committed of a subtask.

    Attributes:
        operator_uid: the operator.
        version: the unique name of the state that the batch has left.
        checkpoint_id: the batch id plus one.
        first_group, last_group: the key groups.
        handle: the snapshot's handle as JSON; empty where the operator has no state.
        figures: the figures of the batch as JSON.
        format_version: of this row.
    """

    operator_uid: str
    version: str
    checkpoint_id: int
    first_group: int
    last_group: int
    handle: str
    figures: str
    format_version: int = POINTER_VERSION

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups of the subtask that wrote it."""
        return KeyGroupRange(self.first_group, self.last_group)

    @classmethod
    def from_row(cls, row: Any) -> Pointer:
        """Read the state row; ApiVersionError where a newer Millpond wrote it."""
        pointer = cls(*row)
        if pointer.format_version > POINTER_VERSION:
            raise ApiVersionError("The pointer", pointer.format_version, POINTER_VERSION)
        return pointer

    def check_range(self, expected: KeyGroupRange) -> None:
        """Raise RestoreError unless the pointer covers exactly these key groups."""
        if self.key_group_range != expected:
            cause = (
                f"its state covers key groups {self.key_group_range}, this run wants {expected}; "
                "set spark.millpond.parallelism back to what it was"
            )
            raise RestoreError(f"operator {self.operator_uid!r}", (cause,))

    def figures_dict(self) -> dict[str, Any]:
        """The figures by name."""
        figures: dict[str, Any] = json.loads(self.figures)
        return figures


POINTER_SCHEMA = StructType(
    [
        StructField("operator_uid", StringType()),
        StructField("version", StringType()),
        StructField("checkpoint_id", LongType()),
        StructField("first_group", IntegerType()),
        StructField("last_group", IntegerType()),
        StructField("handle", StringType()),
        StructField("figures", StringType()),
        StructField("format_version", IntegerType()),
    ]
)
