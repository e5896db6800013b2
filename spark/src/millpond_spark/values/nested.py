"""The carriers of nested types, and the choice of the carrier for a Spark type.

A carrier converts values so that pandas does not change them, see ``values/carrier.py``. Nested
values become JSON: a struct becomes an object whose fields are named by position, a map becomes an
array of entries, and doubles and bytes become texts. A null is JSON's null at every depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import msgspec
import pyarrow as pa
from millpond.errors import UnsupportedColumnError
from millpond.functions.row_conversion import row_reader
from millpond.types.rows import row_maker, row_type
from pyspark.sql import Column
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type
from typing_extensions import override

from millpond_spark.values.carrier import (
    BinaryCarrier,
    BooleanCarrier,
    Carrier,
    DecimalCarrier,
    DoubleCarrier,
    FloatCarrier,
    IntegralCarrier,
    NullCarrier,
    TextCarrier,
    misfit,
    packed,
)
from millpond_spark.values.temporal import (
    DateCarrier,
    IntervalCarrier,
    TimeCarrier,
    TimestampCarrier,
    TimestampNtzCarrier,
)

_encode_json = msgspec.json.encode
_decode_json = msgspec.json.decode

_CARRIERS: dict[type[T.DataType], Callable[[Any], Carrier]] = {
    T.ByteType: IntegralCarrier,
    T.ShortType: IntegralCarrier,
    T.IntegerType: IntegralCarrier,
    T.LongType: IntegralCarrier,
    T.StringType: TextCarrier,
    T.BooleanType: BooleanCarrier,
    T.FloatType: FloatCarrier,
    T.DoubleType: DoubleCarrier,
    T.DecimalType: DecimalCarrier,
    T.BinaryType: BinaryCarrier,
    T.DateType: DateCarrier,
    T.TimestampType: TimestampCarrier,
    T.TimestampNTZType: TimestampNtzCarrier,
    T.DayTimeIntervalType: IntervalCarrier,
    T.NullType: NullCarrier,
}
if hasattr(T, "TimeType"):  # Spark 4.0 has no such class
    _CARRIERS[T.TimeType] = TimeCarrier


def carrier_for(name: str, declared: T.DataType) -> Carrier:
    """Return the carrier of the column `name` with the type `declared`.

    Raises:
        UnsupportedColumnError: Millpond does not support the type or a part of it.
    """
    if isinstance(declared, (T.ArrayType, T.MapType, T.StructType)):
        return NestedCarrier(name, declared)
    if type(declared) not in _CARRIERS:
        raise UnsupportedColumnError(name, declared.simpleString())
    return _CARRIERS[type(declared)](declared)


def arrow_type_of_spark(declared: T.DataType) -> pa.DataType:
    """Return the Arrow type that vectorized functions see for the Spark type `declared`."""
    # PySpark's own function needs other arguments for the time zone in other versions.
    if isinstance(declared, T.TimestampType):
        return pa.timestamp("us", "UTC")
    if isinstance(declared, T.ArrayType):
        return pa.list_(pa.field("element", arrow_type_of_spark(declared.elementType)))
    if isinstance(declared, T.MapType):
        return pa.map_(*map(arrow_type_of_spark, (declared.keyType, declared.valueType)))
    if isinstance(declared, T.StructType):
        return pa.struct([(each.name, arrow_type_of_spark(each.dataType)) for each in declared])
    return to_arrow_type(declared)


_Node: TypeAlias = "Carrier | _Text | _Array | _Map | _Struct"
"""The carrier of one level of a nested type. The level above handles nulls."""


@attrs.frozen
class _Text:
    """The carrier of a double or of bytes within a nested type: a text in the JSON."""

    _carrier: Carrier
    _to_text: str
    _from_text: str
    _parse: Callable[[str], Any]
    _format: Callable[[Any], str]
    carried = T.StringType()

    def encode(self, column: str) -> str:
        return self._to_text.format(self._carrier.encode(column))

    def decode(self, value: Any) -> Any:
        return self._parse(value)

    def pack(self, value: Any) -> Any:
        return self._format(self._carrier.pack(value))

    def restore(self, column: str) -> str:
        return self._carrier.restore(self._from_text.format(column))


def _java_double(value: float) -> str:
    """Return the text of `value` that Spark casts back to an equal double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


class _Array:
    """The carrier of an array: a JSON array. Functions see a list, or a tuple in a map's key."""

    def __init__(self, element: _Node, depth: int, *, nullable: bool, key: bool) -> None:
        self._element = element
        self._depth = depth
        self._nullable = nullable
        self._kind: type = tuple if key else list
        self.carried: T.DataType = T.ArrayType(element.carried)

    def encode(self, column: str) -> str:
        return _each(column, self._element.encode, self._depth)

    def decode(self, value: Any) -> Any:
        decode = self._element.decode
        return self._kind([None if item is None else decode(item) for item in value])

    def pack(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise misfit(value)
        pack, nullable = self._element.pack, self._nullable
        return [packed(pack, item, nullable=nullable) for item in value]

    def restore(self, column: str) -> str:
        return _each(column, self._element.restore, self._depth)


class _Map:
    """The carrier of a map: a JSON array of entries with the fields ``k`` and ``v``."""

    def __init__(self, key: _Node, value: _Node, depth: int, *, nullable: bool) -> None:
        self._key = key
        self._depth = depth
        self._value = value
        self._nullable = nullable
        fields = [T.StructField("k", key.carried), T.StructField("v", value.carried)]
        self.carried: T.DataType = T.ArrayType(T.StructType(fields))

    def encode(self, column: str) -> str:
        def entry(pair: str) -> str:
            key, value = self._key.encode(f"{pair}.key"), self._value.encode(f"{pair}.value")
            return f"named_struct('k', {key}, 'v', {value})"

        return _each(f"map_entries({column})", entry, self._depth)

    def decode(self, value: Any) -> Any:
        made = {}
        for entry in value:
            item = entry.get("v")
            key = self._key.decode(entry["k"])
            made[key] = None if item is None else self._value.decode(item)
        return made

    def pack(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise misfit(value)
        pack_key, pack, nullable = self._key.pack, self._value.pack, self._nullable
        entries = [
            {
                "k": packed(pack_key, key, nullable=False),
                "v": packed(pack, item, nullable=nullable),
            }
            for key, item in value.items()
        ]
        if len({_encode_json(entry["k"]) for entry in entries}) < len(entries):
            raise ValueError("two keys of a map are equal in its column")
        return entries

    def restore(self, column: str) -> str:
        def entry(pair: str) -> str:
            key, value = self._key.restore(f"{pair}.k"), self._value.restore(f"{pair}.v")
            return f"named_struct('key', {key}, 'value', {value})"

        return f"map_from_entries({_each(column, entry, self._depth)})"


class _Struct:
    """The carrier of a struct: a JSON object with the fields ``_0``, ``_1`` and so on."""

    def __init__(self, declared: T.StructType, parts: list[_Node]) -> None:
        self._names = tuple(declared.names)
        self._parts = parts
        self._nullable = [field.nullable for field in declared.fields]
        self._make = row_maker(row_type(declared.names))
        self.carried: T.DataType = T.StructType(
            [T.StructField(f"_{index}", part.carried) for index, part in enumerate(parts)]
        )

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without `_make`, which each process creates for itself."""
        return {name: value for name, value in vars(self).items() if name != "_make"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make = row_maker(row_type(self._names))

    def encode(self, column: str) -> str:
        return self._struct(column, [part.encode for part in self._parts])

    def decode(self, value: Any) -> Any:
        items = [value.get(f"_{index}") for index in range(len(self._parts))]
        pairs = zip(self._parts, items, strict=True)
        return self._make([None if item is None else part.decode(item) for part, item in pairs])

    def pack(self, value: Any) -> Any:
        if value is None:
            raise misfit(value)
        items = row_reader(type(value), self._names)(value)
        pairs = enumerate(zip(self._parts, items, strict=True))
        return {
            f"_{index}": packed(part.pack, item, nullable=self._nullable[index])
            for index, (part, item) in pairs
        }

    def restore(self, column: str) -> str:
        return self._struct(column, [part.restore for part in self._parts])

    def _struct(self, column: str, made: list[Callable[[str], str]]) -> str:
        fields = [f"'_{at}', {make(f'{column}._{at}')}" for at, make in enumerate(made)]
        return f"CASE WHEN {column} IS NOT NULL THEN named_struct({', '.join(fields)}) END"


def _each(column: str, make: Callable[[str], str], depth: int) -> str:
    """Return SQL that applies `make` to each element of the array `column`.

    The SQL names an element by `depth`, so that elements of nested arrays have different names.
    """
    element = f"i{depth}"
    return f"transform({column}, {element} -> {make(element)})"


def _node(name: str, declared: T.DataType, depth: int = 0, *, key: bool = False) -> _Node:
    """Return the carrier of a part of a nested type.

    Args:
        name: the column's name and the path to the part, for errors.
        declared: the part's type.
        depth: the number of levels above the part.
        key: whether the part is in a map's key. Decoded values must then be hashable.

    Raises:
        UnsupportedColumnError: Millpond does not support the type or a part of it.
    """
    if isinstance(declared, T.ArrayType):
        element = _node(f"{name}[]", declared.elementType, depth + 1, key=key)
        return _Array(element, depth, nullable=declared.containsNull, key=key)
    if isinstance(declared, T.MapType):
        keys = _node(f"{name}.key", declared.keyType, depth + 1, key=True)
        values = _node(f"{name}.value", declared.valueType, depth + 1)
        return _Map(keys, values, depth, nullable=declared.valueContainsNull)
    if isinstance(declared, T.StructType):
        parts = [_node(f"{name}.{f.name}", f.dataType, depth + 1, key=key) for f in declared.fields]
        return _Struct(declared, parts)
    carrier = carrier_for(name, declared)
    if isinstance(carrier, DoubleCarrier):
        return _Text(carrier, "CAST({} AS STRING)", "CAST({} AS DOUBLE)", float, _java_double)
    if isinstance(carrier, BinaryCarrier):
        return _Text(carrier, "hex({})", "unhex({})", bytes.fromhex, bytes.hex)
    return carrier


class NestedCarrier(Carrier):
    """The carrier of arrays, maps and structs: a JSON text of an object with the field ``v``."""

    carried = T.StringType()
    python_name = "list, dict or tuple"

    def __init__(self, name: str, declared: T.DataType) -> None:
        super().__init__(declared)
        self._node = _node(name, declared)

    def by_position(self, column: Column) -> Column:
        """Return `column` with struct fields named by position, the input of ``encode``."""
        return column.cast(_renamed_fields(self.declared, by_position=True))

    @override
    def encode(self, column: str) -> str:
        text = f"to_json(named_struct('v', {self._node.encode(column)}))"
        return f"CASE WHEN {column} IS NOT NULL THEN {text} END"

    @override
    def decode(self, value: Any) -> Any:
        return self._node.decode(_decode_json(value)["v"])

    @override
    def pack(self, value: Any) -> Any:
        return _encode_json({"v": self._node.pack(value)}).decode()

    def parsed(self, column: str) -> str:
        """Return SQL that parses the JSON in `column`. The result is the input of ``restore``."""
        schema = f"v {self._node.carried.simpleString()}"
        return f"from_json({column}, '{schema}', map('mode', 'FAILFAST')).v"

    @override
    def restore(self, column: str) -> str:
        return self._node.restore(column)

    def by_name(self, column: Column) -> Column:
        """Return the restored `column` with the user's names of struct fields."""
        return column.cast(_renamed_fields(self.declared, by_position=False))


def _renamed_fields(declared: T.DataType, *, by_position: bool) -> T.DataType:
    """Return `declared` with all parts nullable. If `by_position`, name fields by position.

    A cast to this type renames the fields, because Spark's cast matches fields by position. If two
    of the user's names differ only in case, Spark refuses SQL that uses one of them. Names by
    position avoid this.
    """
    if isinstance(declared, T.ArrayType):
        return T.ArrayType(_renamed_fields(declared.elementType, by_position=by_position))
    if isinstance(declared, T.MapType):
        key = _renamed_fields(declared.keyType, by_position=by_position)
        return T.MapType(key, _renamed_fields(declared.valueType, by_position=by_position))
    if isinstance(declared, T.StructType):
        return T.StructType(
            [
                T.StructField(
                    f"_{index}" if by_position else field.name,
                    _renamed_fields(field.dataType, by_position=by_position),
                )
                for index, field in enumerate(declared.fields)
            ]
        )
    return declared
