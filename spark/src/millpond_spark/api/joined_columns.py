"""The columns of a join's output, made of the columns of both inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs
from millpond.errors import ConfigError
from pyspark.sql.types import StructField, StructType

from millpond_spark.plan.column_arguments import Choice


@attrs.frozen
class JoinedColumns:
    """The columns of the left rows, and behind them the columns of the right rows.

    If a key column has the same name in both inputs, the output has it once, filled in every row.

    Attributes:
        schema: the columns of the output.
        left_width: the number of columns of the left rows.
        right: the positions of the right rows' columns that the output has.
        keys: the positions of the key columns that the output has once, in the left and the right
            rows.
    """

    schema: StructType
    left_width: int
    right: tuple[int, ...]
    keys: tuple[tuple[int, int], ...]

    @classmethod
    def from_inputs(
        cls,
        left: StructType,
        right: StructType,
        keys: Sequence[tuple[Choice, Choice]],
        place: str,
    ) -> Self:
        """Return the columns of a join.

        Args:
            left: the columns of the left rows.
            right: the columns of the right rows.
            keys: the pairs of key columns.
            place: the user's call, for errors.

        Raises:
            ConfigError: another column than a key has the same name in both inputs.
        """
        once = tuple(
            (mine.position, theirs.position)
            for mine, theirs in keys
            if mine.position is not None
            and theirs.position is not None
            and mine.field.name == theirs.field.name
        )
        dropped = {position for _, position in once}
        kept = tuple(at for at in range(len(right)) if at not in dropped)
        taken = {name.lower() for name in left.names}
        for at in kept:
            if right[at].name.lower() in taken:
                reason = "both inputs have a column of this name: rename one before key_by"
                raise ConfigError(right[at].name, reason, place)
        fields = [*left, *(right[at] for at in kept)]
        schema = StructType([StructField(field.name, field.dataType) for field in fields])
        return cls(schema, len(left), kept, once)

    def pair(self, left: Sequence[Any] | None, right: Sequence[Any] | None) -> tuple[Any, ...]:
        """Return the output row of a left and a right row, one of which may be None."""
        if right is None:
            assert left is not None
            return (*left, *(None,) * len(self.right))
        others = tuple(right)  # reading an item of a plain tuple takes a third of the time
        if len(self.right) < len(others):
            others = tuple([others[at] for at in self.right])
        if left is not None:
            return (*left, *others)
        mine: list[Any] = [None] * self.left_width
        for at, position in self.keys:
            mine[at] = right[position]
        return (*mine, *others)
