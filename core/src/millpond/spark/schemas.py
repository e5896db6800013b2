"""Schemas and columns as users name them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

from millpond.arguments import check_text, check_type
from millpond.errors import ConfigError, brief

__all__ = ["brief_reason", "column_names", "output_schema", "position_of", "time_position"]


def output_schema(output: str | StructType) -> StructType:
    """The columns that a function yields, from DDL or as they are.

    Raises:
        ConfigError: it is of another type, or not DDL.
        ArgumentValueError: it is no text of whole characters.
    """
    if isinstance(output, StructType):
        check_text("output", output.simpleString())
        return output
    if not isinstance(output, str):
        reason = f"expected DDL text or a StructType, got {type(output).__name__}"
        raise ConfigError("output", reason, "process(...)")
    check_text("output", output)
    try:
        parsed = DataType.fromDDL(output)
    except PySparkException as error:
        reason = f"{brief(output)} is not DDL: {brief_reason(error)}"
        raise ConfigError("output", reason, "process(...)") from error
    return parsed if isinstance(parsed, StructType) else StructType().add("value", parsed)


def column_names(parameter: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that an argument names, by one text or several; ArgumentTypeError otherwise."""
    check_type(parameter, given, str | Sequence)
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        check_type(parameter, name, str)
    return names


def brief_reason(error: Exception) -> str:
    """What Spark or Python says, in one line and not too long."""
    return " ".join(str(error).split())[:200]


def position_of(schema: StructType, name: str, argument: str) -> int:
    """The position of a column; ConfigError if no column has that name."""
    check_type(argument, name, str)
    if name not in schema.names:
        reason = f"there is no such column; there are: {', '.join(schema.names)}"
        raise ConfigError(name, reason, f"{argument}(...)")
    return schema.names.index(name)


def time_position(schema: StructType, name: str) -> int:
    """The position of a timestamp column."""
    position = position_of(schema, name, "event_time")
    if not schema[name].dataType.typeName().startswith("timestamp"):
        raise ConfigError(name, "is not a timestamp column", "event_time")
    return position
