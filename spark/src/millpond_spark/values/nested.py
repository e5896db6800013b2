"""The levels of a nested type, and how each crosses in JSON.

Structs become objects by position, maps arrays of entries, doubles and bytes text; a null
stays null at every depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from millpond.functions.row_conversion import row_reader
from millpond.types.rows import row_maker, row_type
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

from millpond_spark.values.carrier import BinaryCarrier, Carrier, packed, refuse
from millpond_spark.values.lookup import scalar_carrier
from millpond_spark.values.numeric import DoubleCarrier, java_double

_encode_json = msgspec.json.encode


class Node:
    """One level of a nested type; the methods are those of a carrier, for a part of its value."""

    carried: DataType

    def encode(self, column: str) -> str:
        """See ``Carrier.encode``."""
        raise NotImplementedError

    def decode(self, value: Any) -> Any:
        """See ``Carrier.decode``."""
        raise NotImplementedError

    def pack(self, value: Any) -> Any:
        """See ``Carrier.pack``."""
        raise NotImplementedError

    def restore(self, column: str) -> str:
        """See ``Carrier.restore``."""
        raise NotImplementedError


class _Leaf(Node):
    """A scalar; doubles and bytes take the detour over text."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._double = isinstance(carrier, DoubleCarrier)
        self._bytes = isinstance(carrier, BinaryCarrier)
        self.carried = StringType() if self._double or self._bytes else carrier.carried

    @override
    def encode(self, column: str) -> str:
        column = self._carrier.encode(column)
        if self._bytes:
            return f"hex({column})"
        return f"CAST({column} AS STRING)" if self._double else column

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
    def restore(self, column: str) -> str:
        if self._bytes:
            column = f"unhex({column})"
        elif self._double:
            column = f"CAST({column} AS DOUBLE)"
        return self._carrier.restore(column)


class _Array(Node):
    """An array; a tuple in a map's key, which a dictionary has to hash."""

    def __init__(self, element: Node, depth: int, *, nullable: bool, key: bool) -> None:
        self._element = element
        self._depth = depth
        self._nullable = nullable
        self._kind: type = tuple if key else list
        self.carried = ArrayType(element.carried)

    @override
    def encode(self, column: str) -> str:
        return _each(column, self._element.encode, self._depth)

    @override
    def decode(self, value: Any) -> Any:
        decode = self._element.decode
        return self._kind([None if item is None else decode(item) for item in value])

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise refuse(value)
        pack, nullable = self._element.pack, self._nullable
        return [packed(pack, item, nullable=nullable) for item in value]

    @override
    def restore(self, column: str) -> str:
        return _each(column, self._element.restore, self._depth)


class _Map(Node):
    def __init__(self, key: Node, value: Node, depth: int, *, nullable: bool) -> None:
        self._key = key
        self._depth = depth
        self._value = value
        self._nullable = nullable
        fields = [StructField("k", key.carried), StructField("v", value.carried)]
        self.carried = ArrayType(StructType(fields))

    @override
    def encode(self, column: str) -> str:
        def entry(pair: str) -> str:
            key, value = self._key.encode(f"{pair}.key"), self._value.encode(f"{pair}.value")
            return f"named_struct('k', {key}, 'v', {value})"

        return _each(f"map_entries({column})", entry, self._depth)

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
            {
                "k": packed(pack_key, key, nullable=False),
                "v": packed(pack, item, nullable=nullable),
            }
            for key, item in value.items()
        ]
        if len({_encode_json(entry["k"]) for entry in entries}) < len(entries):
            raise ValueError("two keys of a map are the same one in its column")
        return entries

    @override
    def restore(self, column: str) -> str:
        def entry(pair: str) -> str:
            key, value = self._key.restore(f"{pair}.k"), self._value.restore(f"{pair}.v")
            return f"named_struct('key', {key}, 'value', {value})"

        return f"map_from_entries({_each(column, entry, self._depth)})"


class _Struct(Node):
    def __init__(self, declared: StructType, parts: list[Node]) -> None:
        self._names = tuple(declared.names)
        self._parts = parts
        self._nullable = [field.nullable for field in declared.fields]
        self._make = row_maker(row_type(declared.names))
        self.carried = StructType(
            [StructField(f"_{index}", part.carried) for index, part in enumerate(parts)]
        )

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Without the rows' type, which each process has for itself."""
        return {name: value for name, value in vars(self).items() if name != "_make"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make = row_maker(row_type(self._names))

    @override
    def encode(self, column: str) -> str:
        return self._struct(column, [part.encode for part in self._parts])

    @override
    def decode(self, value: Any) -> Any:
        items = [value.get(f"_{index}") for index in range(len(self._parts))]
        pairs = zip(self._parts, items, strict=True)
        return self._make([None if item is None else part.decode(item) for part, item in pairs])

    @override
    def pack(self, value: Any) -> Any:
        if value is None:
            raise refuse(value)
        items = row_reader(type(value), self._names)(value)
        pairs = enumerate(zip(self._parts, items, strict=True))
        return {
            f"_{index}": packed(part.pack, item, nullable=self._nullable[index])
            for index, (part, item) in pairs
        }

    @override
    def restore(self, column: str) -> str:
        return self._struct(column, [part.restore for part in self._parts])

    def _struct(self, column: str, made: list[Callable[[str], str]]) -> str:
        fields = [f"'_{at}', {make(f'{column}._{at}')}" for at, make in enumerate(made)]
        return f"CASE WHEN {column} IS NOT NULL THEN named_struct({', '.join(fields)}) END"


def _each(column: str, make: Callable[[str], str], depth: int) -> str:
    """An array of what is made of each element; inner elements have names of their own."""
    element = f"i{depth}"
    return f"transform({column}, {element} -> {make(element)})"


def node_of(name: str, declared: DataType, depth: int = 0, *, key: bool = False) -> Node:
    """The node of a type.

    Args:
        name: the column's, with the way to this level, for errors.
        declared: the type.
        depth: how many levels there are above.
        key: whether its values must be hashable, for they are a map's keys.

    Raises:
        UnsupportedColumnError: a part of it cannot be carried without loss.
    """
    if isinstance(declared, ArrayType):
        element = node_of(f"{name}[]", declared.elementType, depth + 1, key=key)
        return _Array(element, depth, nullable=declared.containsNull, key=key)
    if isinstance(declared, MapType):
        keys = node_of(f"{name}.key", declared.keyType, depth + 1, key=True)
        values = node_of(f"{name}.value", declared.valueType, depth + 1)
        return _Map(keys, values, depth, nullable=declared.valueContainsNull)
    if isinstance(declared, StructType):
        parts = [
            node_of(f"{name}.{f.name}", f.dataType, depth + 1, key=key) for f in declared.fields
        ]
        return _Struct(declared, parts)
    return _Leaf(scalar_carrier(name, declared))


_decode_json = msgspec.json.decode


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
