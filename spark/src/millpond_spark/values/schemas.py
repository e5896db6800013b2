"""Output schemas, names of columns in SQL, and the columns that Millpond adds to the user's."""

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
"""The column with the number by which Spark groups the rows of a subtask."""

BATCH_COLUMN = "millpond_batch"
"""The column with the batch identity in wake-ups, rows that make Spark call a subtask.

Only queries over Spark Connect have it.
"""


def column_named(name: str) -> Column:
    """Return the column called `name`, which may have any characters."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """Return the name of a column quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def distinguishable(names: Sequence[str]) -> bool:
    """Return whether all `names` are ASCII and differ even if upper and lower case are equal.

    For other letters, Spark and Python have different rules of case.
    """
    return all(map(str.isascii, names)) and len({name.lower() for name in names}) == len(names)


def output_schema(output: str | StructType, place: str = "process(...)") -> StructType:
    """Return `output`, the columns that a function yields, as a StructType.

    Args:
        output: DDL or a StructType.
        place: the user's call, for errors.

    Raises:
        ConfigError: `output` has another type, or is not valid DDL.
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
    """Return the message of `error` in one line of at most 200 characters."""
    said = str(error)
    if isinstance(error, Py4JJavaError):
        said = said.partition("\n: ")[2]  # behind the name of the call
    return " ".join(said.split())[:200]
