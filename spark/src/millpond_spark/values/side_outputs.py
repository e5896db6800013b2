"""Side outputs: their rows are in one frame with the main output, in one struct column for each.

A side output's column is null in the rows of all other outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs
import pandas as pd
import pyarrow as pa
from millpond.errors import ConfigError, OutputTypeError
from millpond.functions.dead_letters import DEAD_LETTERS, DeadLetter
from millpond.functions.row_conversion import is_single_value
from millpond.functions.side_outputs import OutputTag, is_side_row, split_outputs
from pyspark.sql.types import StructField, StructType

from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.schemas import output_schema

SUBTASK_METRICS = OutputTag(
    "subtask_metrics",
    "first_group int, last_group int, checkpoint_id bigint, metrics map<string, double>",
)
"""The side output with the metrics of each subtask, for a query's progress or a sink.

In a streaming query, each subtask puts out one row per micro-batch in which it runs. The columns
are fields of ``SubtaskMetrics``; ``metrics`` has those whose values are numbers.
"""


@attrs.frozen
class SideRows:
    """Packs the rows of the main output and of side outputs into one frame.

    The frame has the columns of the main output, and a struct column for each side output. In a row
    of a side output, this struct has the row's values, and all other columns are null.

    Attributes:
        main: the codec of the main output's columns.
        joint: the codec of all columns of the frame.
        tags: the names of the side outputs and of their struct columns.
        apart: for each side output, the codec of its fields. Its errors name the wrong field.
    """

    main: OutputCodec
    joint: OutputCodec
    tags: tuple[str, ...]
    apart: tuple[OutputCodec, ...]

    @classmethod
    def from_schema(
        cls,
        output: StructType,
        tags: Sequence[OutputTag],
        rows: StructType,
        *,
        in_lists: bool = False,
    ) -> Self:
        """Return the codec of an output with side outputs.

        Args:
            output: the columns of the main output.
            tags: the tags of the side outputs.
            rows: the columns of the operator's input, for tags without a type.
            in_lists: whether to send lists of values, see ``OutputCodec.from_schema``.

        Raises:
            ConfigError: two outputs have the same name, or a tag's type is not valid.
            UnsupportedColumnError: Millpond does not support a column's type.
        """
        names = tuple(tag.tag_id for tag in tags)
        taken = [name.lower() for name in (*output.names, *names)]
        for name in names:
            if taken.count(name.lower()) > 1:
                reason = (
                    "the output has a column of that name, in upper or lower case: give the side "
                    "output another one, and each only once"
                )
                raise ConfigError(name, reason, "OutputTag(...)")
        schemas = [
            rows if tag.type_info is None else output_schema(tag.type_info, f"{tag}")
            for tag in tags
        ]
        nullable = [StructField(field.name, field.dataType) for field in output]
        beside = [StructField(name, schema) for name, schema in zip(names, schemas, strict=True)]
        joint = OutputCodec.from_schema(StructType(nullable + beside), in_lists=in_lists)
        apart = tuple(map(OutputCodec.from_schema, schemas))
        return cls(OutputCodec.from_schema(output), joint, names, apart)

    def parts(self, rows: Sequence[Any], operator_uid: str) -> list[list[Any]]:
        """Pack `rows`, which the user's function has put out, into encoded columns.

        If the query does not use a side output, its rows are dropped, as in Flink.

        Returns:
            A list of at most two items. One item has the encoded columns of all rows of the main
            output. The other one has the encoded columns of all rows of side outputs.

        Raises:
            OutputTypeError: a row does not fit the columns of its output.
        """
        main, side = split_outputs(rows)
        parts = []
        if main:
            columns = self.main.columns(main, operator_uid)
            missing = self.joint.kinds[len(columns) :]
            parts.append([*columns, *(pa.nulls(len(main), kind) for kind in missing)])
        side = [(tag, row) for tag, row in side if tag.tag_id in self.tags]
        try:
            wide = [self._joint_row(tag, row, operator_uid) for tag, row in side]
            return [*parts, self.joint.columns(wide, operator_uid)] if wide else parts
        except OutputTypeError:
            for tag, row in side:
                self.check(tag, row, operator_uid)
            raise

    def check(self, tag: OutputTag, row: Any, operator_uid: str) -> None:
        """Raise OutputTypeError with the field's name if `row` does not fit the side output `tag`.

        If the query does not use the side output, no error is raised.
        """
        if tag.tag_id not in self.tags:
            return
        try:
            self.apart[self.tags.index(tag.tag_id)].check(row, operator_uid)
        except OutputTypeError as error:
            error.side_output = tag.tag_id
            raise

    def _joint_row(self, tag: OutputTag, row: Any, operator_uid: str) -> tuple[Any, ...]:
        """Return `row`, of the side output `tag`, as a row of the frame with all columns."""
        at = self.tags.index(tag.tag_id)
        if type(row) is DeadLetter:
            row = row[: len(self.apart[at].names)]
        single = len(self.apart[at].names) == 1
        if row is None and not single:
            # A null struct would make it a row of the main output, so ``check`` raises an error.
            self.check(tag, row, operator_uid)
        whole = (row,) if single and is_single_value(type(row)) else row
        before = len(self.joint.names) - len(self.tags) + at
        after = len(self.tags) - at - 1
        return (*(None,) * before, whole, *(None,) * after)


def dead_letter_tag(rows: StructType, second: StructType | None) -> OutputTag:
    """Return the tag ``DEAD_LETTERS`` with a type: the columns of dead letters.

    Args:
        rows: the columns of the operator's input.
        second: the columns of the second input, if there is one.
    """
    columns = StructType()
    for name in ("operator", "key", "method", "error", "traceback"):
        columns.add(name, "string")
    columns.add("row", rows)
    if second is not None:
        columns.add("second_row", second)
    return OutputTag(DEAD_LETTERS.tag_id, columns)


class Packer:
    """Packs output rows whenever some are ready, and returns all packed rows as one frame.

    Args:
        main: the codec of the main output.
        sides: the codec of the main output and side outputs, if the query uses any.
        operator_uid: the operator, for errors.
    """

    def __init__(self, main: OutputCodec, sides: SideRows | None, operator_uid: str) -> None:
        self._main = main
        self._sides = sides
        self._uid = operator_uid
        self._parts: list[list[Any]] = []
        self.rows = 0

    def add(self, rows: Sequence[Any]) -> None:
        """Pack `rows`, which the function has put out, and add their number to the count ``rows``.

        Raises:
            OutputTypeError: a row does not fit the columns of its output.
        """
        self.rows += len(rows)
        if self._sides is not None:
            self._parts += self._sides.parts(rows, self._uid)
            return
        try:
            columns = self._main.columns(rows, self._uid)
        except OutputTypeError:
            # A row of a side output never fits the main output. So a search for side outputs is
            # needed only after an error.
            if not any(map(is_side_row, rows)):
                raise
            rows, _ = split_outputs(rows)
            if not rows:
                return
            columns = self._main.columns(rows, self._uid)
        self._parts.append(columns)

    def take(self) -> list[pd.DataFrame]:
        """Return one encoded frame of all rows since the last call; an empty list without rows."""
        parts, self._parts, self.rows = self._parts, [], 0
        if not parts:
            return []
        codec = self._main if self._sides is None else self._sides.joint
        whole = len(parts) == 1
        columns = parts[0] if whole else list(map(pa.concat_arrays, zip(*parts, strict=True)))
        return [codec.frame(columns)]
