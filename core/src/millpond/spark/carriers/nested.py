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
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from typing_extensions import override

from millpond.spark.carriers.carrier import (
    BinaryCarrier,
    Carrier,
    FloatingCarrier,
    java_double,
    refuse,
)
from millpond.spark.carriers.lookup import scalar_carrier
from millpond.spark.carriers.named_rows import reader_of

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
        return NestedCarrier(_node(name, declared))
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
        self._double = isinstance(carrier, FloatingCarrier)
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
    def __init__(self, element: _Node) -> None:
        self._element = element
        self.carried = ArrayType(element.carried)

    @override
    def encode(self, column: Column) -> Column:
        return F.transform(column, self._element.encode)

    @override
    def decode(self, value: Any) -> Any:
        decode = self._element.decode
        return [None if item is None else decode(item) for item in value]

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise refuse(value)
        pack = self._element.pack
        return [None if item is None else pack(item) for item in value]

    @override
    def restore(self, column: Column) -> Column:
        return F.transform(column, self._element.restore)


class _Map(_Node):
    def __init__(self, key: _Node, value: _Node) -> None:
        self._key = key
        self._value = value
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
            made[_hashable(self._key.decode(entry["k"]))] = (
                None if item is None else self._value.decode(item)
            )
        return made

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise refuse(value)
        return [
            {"k": self._key.pack(key), "v": None if item is None else self._value.pack(item)}
            for key, item in value.items()
        ]

    @override
    def restore(self, column: Column) -> Column:
        def entry(pair: Column) -> Column:
            key, value = self._key.restore(pair["k"]), self._value.restore(pair["v"])
            return F.struct(key.alias("key"), value.alias("value"))

        return F.map_from_entries(F.transform(column, entry))


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


class _Struct(_Node):
    def __init__(self, names: list[str], parts: list[_Node]) -> None:
        self._names = tuple(names)
        self._parts = parts
        self._row = row_type(names)
        self.carried = StructType(
            [StructField(f"_{index}", part.carried) for index, part in enumerate(parts)]
        )

    @override
    def encode(self, column: Column) -> Column:
        fields = [
            part.encode(column.getField(name)).alias(f"_{index}")
            for index, (name, part) in enumerate(zip(self._names, self._parts, strict=True))
        ]
        return F.when(column.isNotNull(), F.struct(*fields))

    @override
    def decode(self, value: Any) -> Any:
        items = [value.get(f"_{index}") for index in range(len(self._parts))]
        pairs = zip(self._parts, items, strict=True)
        return self._row(*[None if item is None else part.decode(item) for part, item in pairs])

    @override
    def pack(self, value: Any) -> Any:
        items = reader_of(type(value), self._names)(value)
        packed = {}
        for index, (part, item) in enumerate(zip(self._parts, items, strict=True)):
            packed[f"_{index}"] = None if item is None else part.pack(item)
        return packed

    @override
    def restore(self, column: Column) -> Column:
        fields = [
            part.restore(column.getField(f"_{index}")).alias(name)
            for index, (name, part) in enumerate(zip(self._names, self._parts, strict=True))
        ]
        return F.when(column.isNotNull(), F.struct(*fields))


def _node(name: str, declared: DataType) -> _Node:
    if isinstance(declared, ArrayType):
        return _Array(_node(f"{name}[]", declared.elementType))
    if isinstance(declared, MapType):
        key = _node(f"{name}.key", declared.keyType)
        return _Map(key, _node(f"{name}.value", declared.valueType))
    if isinstance(declared, StructType):
        parts = [_node(f"{name}.{field.name}", field.dataType) for field in declared.fields]
        return _Struct(declared.names, parts)
    return _Leaf(scalar_carrier(name, declared))


class NestedCarrier(Carrier):
    """A nested value as JSON text, wrapped in an object so that null needs no special case."""

    carried = StringType()
    python_name = "list, dict or tuple"

    def __init__(self, node: _Node) -> None:
        self._node = node
        self._schema = StructType([StructField("v", node.carried)])
        self._pack: Callable[[Any], Any] = node.pack

    @override
    def encode(self, column: Column) -> Column:
        text = F.to_json(F.struct(self._node.encode(column).alias("v")))
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
        return self._node.restore(parsed["v"])
