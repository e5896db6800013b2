"""Arrays, maps and structs cross as JSON whose leaves are lossless.

Structs become objects by position, maps arrays of entries, doubles and bytes text; a null
stays null at every depth.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F
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

from millpond.spark.carriers.carrier import BinaryCarrier, Carrier, refuse
from millpond.spark.carriers.lookup import scalar_carrier
from millpond.spark.carriers.named_rows import reader_of
from millpond.spark.carriers.numeric import DoubleCarrier, java_double

__all__ = ["carrier_for", "row_type"]

_decode_json = msgspec.json.decode
_encode_json = msgspec.json.encode


def row_type(names: list[str]) -> Any:
    """A named tuple type; names that are no identifiers become ``_0``, ``_1`` and so on.

    Its ``_columns`` are the names as they are.
    """
    make: Any = namedtuple  # noqa: PYI024 - names known at run time
    made = make("Row", names, rename=True)
    made._columns = tuple(names)  # noqa: SLF001 - one of ours
    return made


def carrier_for(name: str, declared: DataType) -> Carrier:
    """The carrier of any type.

    Raises:
        UnsupportedColumnError: it, or a part of it, cannot be carried without loss.
    """
    if isinstance(declared, (ArrayType, MapType, StructType)):
        return NestedCarrier(name, declared)
    return scalar_carrier(name, declared)


class _Node:
    """One level of a nested type."""

    carried: DataType

    def encode(self, column: Column) -> Column:
        raise NotImplementedError

    def decode(self, value: Any) -> Any:
        raise NotImplementedError

    def pack(self, value: Any) -> Any:
        raise NotImplementedError

    def restore(self, column: Column) -> Column:
        raise NotImplementedError


class _Leaf(_Node):
    """A scalar; doubles and bytes take the detour over text."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._double = isinstance(carrier, DoubleCarrier)
        self._bytes = isinstance(carrier, BinaryCarrier)
        self.carried = StringType() if self._double or self._bytes else carrier.carried

    @override
    def encode(self, column: Column) -> Column:
        column = self._carrier.encode(column)
        if self._bytes:
            return F.hex(column)
        return column.cast("string") if self._double else column

    @override
    def decode(self, value: Any) -> Any:
        if self._bytes:
            return bytes.fromhex(value)
        return float(value) if self._double else self._carrier.decode(value)

    @override
    def pack(self, value: Any) -> Any:
        packed = self._carrier.pack(value)
        if self._bytes:
            return packed.hex()
        return java_double(packed) if self._double else packed

    @override
    def restore(self, column: Column) -> Column:
        if self._bytes:
            column = F.unhex(column)
        elif self._double:
            column = column.cast("double")
        return self._carrier.restore(column)


class _Array(_Node):
    """An array; a tuple in a map's key, which a dictionary has to hash."""

    def __init__(self, element: _Node, *, nullable: bool, key: bool) -> None:
        self._element = element
        self._nullable = nullable
        self._kind: type = tuple if key else list
        self.carried = ArrayType(element.carried)

    @override
    def encode(self, column: Column) -> Column:
        return F.transform(column, self._element.encode)

    @override
    def decode(self, value: Any) -> Any:
        decode = self._element.decode
        return self._kind([None if item is None else decode(item) for item in value])

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise refuse(value)
        pack, nullable = self._element.pack, self._nullable
        return [None if item is None and nullable else pack(item) for item in value]

    @override
    def restore(self, column: Column) -> Column:
        return F.transform(column, self._element.restore)


class _Map(_Node):
    def __init__(self, key: _Node, value: _Node, *, nullable: bool) -> None:
        self._key = key
        self._value = value
        self._nullable = nullable
        fields = [StructField("k", key.carried), StructField("v", value.carried)]
        self.carried = ArrayType(StructType(fields))

    @override
    def encode(self, column: Column) -> Column:
        def entry(pair: Column) -> Column:
            key, value = self._key.encode(pair["key"]), self._value.encode(pair["value"])
            return F.struct(key.alias("k"), value.alias("v"))

        return F.transform(F.map_entries(column), entry)

    @override
    def decode(self, value: Any) -> Any:
        made = {}
        for entry in value:
            item = entry.get("v")
            key = self._key.decode(entry["k"])
            made[key] = None if item is None else self._value.decode(item)
        return made

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise refuse(value)
        pack_key, pack, nullable = self._key.pack, self._value.pack, self._nullable
        entries = [
            {"k": pack_key(key), "v": None if item is None and nullable else pack(item)}
            for key, item in value.items()
        ]
        if len({_encode_json(entry["k"]) for entry in entries}) < len(entries):
            raise ValueError("two keys of a map are the same one in its column")
        return entries

    @override
    def restore(self, column: Column) -> Column:
        def entry(pair: Column) -> Column:
            key, value = self._key.restore(pair["k"]), self._value.restore(pair["v"])
            return F.struct(key.alias("key"), value.alias("value"))

        return F.map_from_entries(F.transform(column, entry))


class _Struct(_Node):
    def __init__(self, declared: StructType, parts: list[_Node]) -> None:
        self._names = tuple(declared.names)
        self._parts = parts
        self._nullable = [field.nullable for field in declared.fields]
        self._row = row_type(declared.names)
        self.carried = StructType(
            [StructField(f"_{index}", part.carried) for index, part in enumerate(parts)]
        )

    @override
    def encode(self, column: Column) -> Column:
        fields = [
            part.encode(column.getField(f"_{index}")).alias(f"_{index}")
            for index, part in enumerate(self._parts)
        ]
        return F.when(column.isNotNull(), F.struct(*fields))

    @override
    def decode(self, value: Any) -> Any:
        items = [value.get(f"_{index}") for index in range(len(self._parts))]
        pairs = zip(self._parts, items, strict=True)
        return self._row(*[None if item is None else part.decode(item) for part, item in pairs])

    @override
    def pack(self, value: Any) -> Any:
        if value is None:
            raise refuse(value)
        items = reader_of(type(value), self._names)(value)
        packed = {}
        for index, (part, item) in enumerate(zip(self._parts, items, strict=True)):
            null = item is None and self._nullable[index]
            packed[f"_{index}"] = None if null else part.pack(item)
        return packed

    @override
    def restore(self, column: Column) -> Column:
        fields = [
            part.restore(column.getField(f"_{index}")).alias(f"_{index}")
            for index, part in enumerate(self._parts)
        ]
        return F.when(column.isNotNull(), F.struct(*fields))


def _node(name: str, declared: DataType, *, key: bool = False) -> _Node:
    if isinstance(declared, ArrayType):
        element = _node(f"{name}[]", declared.elementType, key=key)
        return _Array(element, nullable=declared.containsNull, key=key)
    if isinstance(declared, MapType):
        keys = _node(f"{name}.key", declared.keyType, key=True)
        values = _node(f"{name}.value", declared.valueType)
        return _Map(keys, values, nullable=declared.valueContainsNull)
    if isinstance(declared, StructType):
        parts = [_node(f"{name}.{f.name}", f.dataType, key=key) for f in declared.fields]
        return _Struct(declared, parts)
    return _Leaf(scalar_carrier(name, declared))


class NestedCarrier(Carrier):
    """A nested value as JSON text, wrapped in an object so that null needs no special case."""

    carried = StringType()
    python_name = "list, dict or tuple"

    def __init__(self, name: str, declared: DataType) -> None:
        self._node = _node(name, declared)
        self._declared = declared
        self._schema = StructType([StructField("v", self._node.carried)])
        self._pack: Callable[[Any], Any] = self._node.pack

    @override
    def encode(self, column: Column) -> Column:
        positional = column.cast(_remade(self._declared, by_position=True))
        text = F.to_json(F.struct(self._node.encode(positional).alias("v")))
        return F.when(column.isNotNull(), text)

    @override
    def decode(self, value: Any) -> Any:
        return self._node.decode(_decode_json(value)["v"])

    @override
    def pack(self, value: Any) -> Any:
        return _encode_json({"v": self._pack(value)}).decode()

    @override
    def restore(self, column: Column) -> Column:
        parsed = F.from_json(column, self._schema, {"mode": "FAILFAST"})
        return self._node.restore(parsed["v"]).cast(_remade(self._declared, by_position=False))


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
