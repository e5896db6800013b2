"""Output schemas, names of columns, and the columns that an operator adds to the user's."""

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
"""The column with a row's key group."""

LABEL_COLUMN = "millpond_label"
"""The column with the label of the subtask that owns the key group. Spark groups by it."""

BATCH_COLUMN = "millpond_batch"
"""The column with the batch in rows that wake subtasks, over Spark Connect."""


def column_named(name: str) -> Column:
    """Return a column by its name, which may have any characters."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """Quote a column's name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def distinguishable(names: Sequence[str]) -> bool:
    """Return whether SQL distinguishes columns by their names under any setting of case.

    Names with other letters than ASCII do not count: Spark and Python change their case by
    different rules.
    """
    return all(map(str.isascii, names)) and len({name.lower() for name in names}) == len(names)


def output_schema(output: str | StructType, place: str = "process(...)") -> StructType:
    """Return the schema of the columns that a function yields.

    Args:
        output: DDL or a StructType.
        place: the call, for errors.

    Raises:
        ConfigError: the output is of another type, or not DDL.
        ArgumentValueError: the DDL has a lone surrogate.
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
    """Return the message of Spark or Python in one line of at most 200 characters."""
    said = str(error)
    if isinstance(error, Py4JJavaError):
        said = said.partition("\n: ")[2]  # behind the name of the call
    return " ".join(said.split())[:200]
