"""Schemas and columns as users name them."""

from __future__ import annotations

from millpond.arguments import check_text
from millpond.errors import ConfigError, brief
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

__all__ = ["brief_reason", "output_schema"]


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
