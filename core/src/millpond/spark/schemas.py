"""Schemas and columns as users name them."""

from __future__ import annotations

from pyspark.sql.types import DataType, StructType

from millpond.errors import ConfigError

__all__ = ["output_schema", "position_of", "time_position"]


def output_schema(output: str | StructType) -> StructType:
    """The columns that a function yields, from DDL or as they are; ConfigError for other types."""
    if isinstance(output, StructType):
        return output
    if not isinstance(output, str):
        reason = f"must be DDL text or a StructType, not {type(output).__name__}"
        raise ConfigError("output", reason, "process(...)")
    parsed = DataType.fromDDL(output)
    return parsed if isinstance(parsed, StructType) else StructType().add("value", parsed)


def position_of(schema: StructType, name: str, place: str) -> int:
    """The position of a column; ConfigError where there is none of that name."""
    if name not in schema.names:
        reason = f"there is no such column; there are: {', '.join(schema.names)}"
        raise ConfigError(name, reason, f"{place}(...)")
    return schema.names.index(name)


def time_position(schema: StructType, name: str) -> int:
    """The position of a timestamp column."""
    position = position_of(schema, name, "event_time")
    if not schema[name].dataType.typeName().startswith("timestamp"):
        raise ConfigError(name, "is no timestamp column", "event_time")
    return position
