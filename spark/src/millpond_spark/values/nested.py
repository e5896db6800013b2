"""Arrays, maps and structs cross as JSON whose leaves are lossless.

Structs become objects by position, maps arrays of entries, doubles and bytes text; a null
stays null at every depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)
from typing_extensions import override

from millpond_spark.values.carrier import Carrier
from millpond_spark.values.json_nodes import node_of
from millpond_spark.values.lookup import scalar_carrier

__all__ = ["NestedCarrier", "carrier_for"]

_decode_json = msgspec.json.decode
_encode_json = msgspec.json.encode


def carrier_for(name: str, declared: DataType) -> Carrier:
    """The carrier of any type.

    Raises:
        UnsupportedColumnError: it, or a part of it, cannot be carried without loss.
    """
    if isinstance(declared, (ArrayType, MapType, StructType)):
        return NestedCarrier(name, declared)
    return scalar_carrier(name, declared)


class NestedCarrier(Carrier):
    """A nested value as JSON text, wrapped in an object so that null needs no special case."""

    carried = StringType()
    python_name = "list, dict or tuple"

    def __init__(self, name: str, declared: DataType) -> None:
        self._node = node_of(name, declared)
        self.declared = declared
        self._pack: Callable[[Any], Any] = self._node.pack

    def by_position(self, column: Column) -> Column:
        """A column with structs' fields named by position, as ``encode`` and ``restore`` see it."""
        return column.cast(_remade(self.declared, by_position=True))

    @override
    def encode(self, column: str) -> str:
        text = f"to_json(named_struct('v', {self._node.encode(column)}))"
        return f"CASE WHEN {column} IS NOT NULL THEN {text} END"

    @override
    def decode(self, value: Any) -> Any:
        return self._node.decode(_decode_json(value)["v"])

    @override
    def pack(self, value: Any) -> Any:
        return _encode_json({"v": self._pack(value)}).decode()

    def parsed(self, column: str) -> str:
        """In SQL, what ``restore`` takes, out of what is carried."""
        schema = f"v {self._node.carried.simpleString()}"
        return f"from_json({column}, '{schema}', map('mode', 'FAILFAST')).v"

    @override
    def restore(self, column: str) -> str:
        return self._node.restore(column)

    def by_name(self, column: Column) -> Column:
        """A restored column with the fields' own names."""
        return column.cast(_remade(self.declared, by_position=False))


def _remade(declared: DataType, *, by_position: bool) -> DataType:
    """The type with nulls everywhere; fields named by position where asked for.

    A cast goes by position, and a reference by name: Spark refuses it where names differ in case
    alone.
    """
    if isinstance(declared, ArrayType):
        return ArrayType(_remade(declared.elementType, by_position=by_position))
    if isinstance(declared, MapType):
        key = _remade(declared.keyType, by_position=by_position)
        return MapType(key, _remade(declared.valueType, by_position=by_position))
    if isinstance(declared, StructType):
        return StructType(
            [
                StructField(
                    f"_{index}" if by_position else field.name,
                    _remade(field.dataType, by_position=by_position),
                )
                for index, field in enumerate(declared.fields)
            ]
        )
    return StringType() if isinstance(declared, (CharType, VarcharType)) else declared
