"""Side outputs in one frame with the main one: a struct column for each, null in all other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs
import numpy as np
import pandas as pd
from pyspark.sql.types import StructField, StructType

from millpond.errors import ConfigError, OutputTypeError
from millpond.runtime.named_rows import is_value
from millpond.runtime.side_outputs import OutputTag, divided, is_side_row
from millpond.spark.carriers.output_frames import OutputCodec
from millpond.spark.schemas import output_schema

__all__ = ["SideRows", "packed_main"]


def packed_main(main: OutputCodec, rows: Sequence[Any], operator_uid: str) -> list[pd.DataFrame]:
    """Rows as a carrier frame, where nobody takes side outputs.

    No row of a side output fits the columns, so they are only looked for where one does not fit.
    """
    try:
        return [main.pack(rows, operator_uid)]
    except OutputTypeError:
        if not any(map(is_side_row, rows)):
            raise
    kept, _ = divided(rows)
    return [main.pack(kept, operator_uid)] if kept else []


@attrs.frozen
class SideRows:
    """Carries the rows of the main output and those of some side outputs.

    Attributes:
        main: the codec of the main output.
        joint: the codec of the columns of the main output and a struct for each side output.
        tags: the names of the side outputs, which are those of the last columns.
        single: of each, whether its rows have a single column.
    """

    main: OutputCodec
    joint: OutputCodec
    tags: tuple[str, ...]
    single: tuple[bool, ...]

    @classmethod
    def of(cls, output: StructType, tags: Sequence[OutputTag], rows: StructType) -> Self:
        """The codec of an output with side outputs.

        Args:
            output: the columns of the main one.
            tags: of the side outputs.
            rows: the columns of the operator's input, which those of a tag without a type are.

        Raises:
            ConfigError: two outputs have the same name, or a tag's type is not one.
            UnsupportedColumnError: a column's type would lose values.
        """
        names = tuple(tag.tag_id for tag in tags)
        for name in names:
            if [*output.names, *names].count(name) > 1:
                reason = "the output has a column of that name: give the side output another one"
                raise ConfigError(name, reason, "OutputTag(...)")
        schemas = [rows if tag.type_info is None else output_schema(tag.type_info) for tag in tags]
        nullable = [StructField(field.name, field.dataType) for field in output]
        beside = [StructField(name, schema) for name, schema in zip(names, schemas, strict=True)]
        joint = OutputCodec.of(StructType(nullable + beside))
        single = tuple(len(schema) == 1 for schema in schemas)
        return cls(OutputCodec.of(output), joint, names, single)

    def packed(self, rows: Sequence[Any], operator_uid: str) -> list[pd.DataFrame]:
        """What a function has yielded as carrier frames: main output, side outputs.

        Rows of side outputs that nobody takes are dropped, as in Flink.

        Raises:
            OutputTypeError: a row does not fit its output.
        """
        main, side = divided(rows)
        frames = [self._widened(self.main.pack(main, operator_uid))] if main else []
        wide = [self._wide(tag, row) for tag, row in side if tag.tag_id in self.tags]
        return [*frames, self.joint.pack(wide, operator_uid)] if wide else frames

    def _widened(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A frame of the main output as one of the joint, whose further columns are null."""
        nothing = np.full(len(frame), None, object)
        columns = [frame[name].array for name in frame.columns]
        return self.joint.frame([*columns, *(nothing for _ in self.tags)])

    def _wide(self, tag: OutputTag, row: Any) -> tuple[Any, ...]:
        """A row of a side output as one of the joint."""
        at = self.tags.index(tag.tag_id)
        whole = (row,) if self.single[at] and is_value(type(row)) else row
        before = len(self.joint.names) - len(self.tags) + at
        after = len(self.tags) - at - 1
        return (*(None,) * before, whole, *(None,) * after)
