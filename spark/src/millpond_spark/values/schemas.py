"""Output schemas, and the columns that the operator adds to the user's."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.arguments import check_text
from millpond.errors import ConfigError, brief
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

GROUP_COLUMN = "millpond_group"
"""The key group of a row."""

LABEL_COLUMN = "millpond_label"
"""The label of the subtask that owns the key group; what Spark groups by."""

BATCH_COLUMN = "millpond_batch"
"""Over Spark Connect, in rows that wake subtasks: the batch that the row belongs to."""


def column_named(name: str) -> Column:
    """A column by its name, whatever characters that has."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's name as SQL has it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def distinguishable(names: Sequence[str]) -> bool:
    """Whether SQL tells columns apart by their names beyond doubt, however it compares letters.

    Which letters outside of ASCII are one but for their case, Spark and Python see differently.
    """
    return all(map(str.isascii, names)) and len({name.lower() for name in names}) == len(names)


def output_schema(output: str | StructType, place: str = "process(...)") -> StructType:
    """The columns that a function yields, from DDL or as they are.

    Args:
        output: DDL or a StructType.
        place: what an error names.

    Raises:
        ConfigError: it is of another type, or not DDL.
        ArgumentValueError: it is no text of whole characters.
    """
    if isinstance(output, StructType):
        check_text("output", output.simpleString())
        return output
    if not isinstance(output, str):
        reason = f"expected DDL text or a StructType, got {type(output).__name__}"
        raise ConfigError("output", reason, place)
    check_text("output", output)
    try:
        parsed = DataType.fromDDL(output)
    except PySparkException as error:
        reason = f"{brief(output)} is not DDL: {brief_reason(error)}"
        raise ConfigError("output", reason, place) from error
    return parsed if isinstance(parsed, StructType) else StructType().add("value", parsed)


def brief_reason(error: Exception) -> str:
    """What Spark or Python says, in one line and not too long."""
    said = str(error)
    if isinstance(error, Py4JJavaError):
        said = said.partition("\n: ")[2]  # behind the name of the call
    return " ".join(said.split())[:200]
