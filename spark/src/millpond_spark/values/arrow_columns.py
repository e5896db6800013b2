"""Carried columns as Arrow arrays of the user's types, and back, a column at a time.

What has no quick way here goes value by value, as rows do, and has the same errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StructType,
    TimestampType,
    VarcharType,
    YearMonthIntervalType,
)

from millpond_spark.values.carrier import Carrier, TextCarrier
from millpond_spark.values.numeric import (
    BooleanCarrier,
    DoubleCarrier,
    FloatCarrier,
    IntegralCarrier,
)
from millpond_spark.values.temporal import DateCarrier, TimestampCarrier, TimestampNtzCarrier

Array = Any
"""An Arrow array."""

_UTC, _NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")

_TYPES = {
    TimestampType: _UTC,
    VarcharType: pa.string(),
    CharType: pa.string(),
    YearMonthIntervalType: pa.int32(),
}


def arrow_type_of_spark(declared: DataType) -> pa.DataType:
    """The type of a column as functions see it.

    Timestamps are in UTC, bounded texts are texts, intervals of months are ints. PySpark knows
    no Arrow type for the last two, and how it is told a time zone differs between its versions.
    """
    if type(declared) in _TYPES:
        return _TYPES[type(declared)]
    if isinstance(declared, ArrayType):
        return pa.list_(pa.field("element", arrow_type_of_spark(declared.elementType)))
    if isinstance(declared, MapType):
        parts = (declared.keyType, declared.valueType)
        return pa.map_(*map(arrow_type_of_spark, parts))
    if isinstance(declared, StructType):
        return pa.struct(
            [(each.name, arrow_type_of_spark(each.dataType)) for each in declared.fields]
        )
    return to_arrow_type(declared)


# ---------------------------------------------------------------- in


def arrow_array(carrier: Carrier, kind: pa.DataType, values: Any, nulls: Any) -> Array:
    """A carried column as an array.

    Args:
        carrier: of the column.
        kind: the array's type.
        values: the column of the frame, an array of NumPy's.
        nulls: the mask of the nulls that the carrier cannot hold itself; None where there are none.
    """
    if values.dtype == object:
        decode = carrier.decode
        if not carrier.identity:
            values = [None if value is None else _plain(decode(value), kind) for value in values]
        return pa.array(values, kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    array = pa.array(values, mask=nulls)
    if isinstance(carrier, DateCarrier):
        array = array.cast(pa.int32())
    return array if array.type == kind else array.cast(kind)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A decoded value in the form in which Arrow takes it: rows as dicts, maps as pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            field.name: _plain(part, field.type) for field, part in zip(kind, value, strict=True)
        }
    if pa.types.is_map(kind):
        return [
            (_plain(key, kind.key_type), _plain(item, kind.item_type))
            for key, item in value.items()
        ]
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    return value


# ---------------------------------------------------------------- out


def carried_column(carrier: Carrier, array: Array) -> Array | None:
    """An array as a carried column; None where its values have to be looked at one by one."""
    pack = _PACKS.get(type(carrier))
    if pack is None:
        return None
    try:
        return pack(carrier, array)
    except pa.ArrowException:
        return None  # one of the values does not fit, and the slow way tells which


def _booleans(_: Carrier, array: Array) -> Array | None:
    return array if pa.types.is_boolean(array.type) else None


def _whole(carrier: IntegralCarrier, array: Array) -> Array | None:
    if not pa.types.is_integer(array.type):
        return None
    numbers = array.cast(pa.int64())
    bounds = pc.min_max(numbers).as_py()
    least, most = bounds["min"], bounds["max"]
    return numbers if least is None or carrier.low <= least <= most <= carrier.high else None


def _doubles(_: Carrier, array: Array) -> Array | None:
    if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
        return None
    return array.cast(pa.float64())


def _floats(carrier: Carrier, array: Array) -> Array | None:
    doubles = _doubles(carrier, array)
    if doubles is None:
        return None
    with np.errstate(over="ignore"):
        narrow = doubles.fill_null(0.0).to_numpy().astype(np.float32)
    if (np.isinf(narrow) & np.isfinite(doubles.fill_null(0.0).to_numpy())).any():
        return None
    return pa.array(narrow.astype(np.float64), mask=doubles.is_null().to_numpy(False))


def _texts(carrier: TextCarrier, array: Array) -> Array | None:
    texts = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    return array.cast(pa.string()) if texts and carrier.length is None else None


def _dates(_: Carrier, array: Array) -> Array | None:
    return array.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(array.type) else None


def _moments(_: Carrier, array: Array) -> Array | None:
    """As rows have it, a moment without time zone means UTC."""
    if not pa.types.is_timestamp(array.type):
        return None
    kind = _NAIVE if array.type.tz is None else _UTC
    return array.cast(kind).cast(pa.int64())


def _naive_moments(carrier: Carrier, array: Array) -> Array | None:
    naive = pa.types.is_timestamp(array.type) and array.type.tz is None
    return _moments(carrier, array) if naive else None


_PACKS: dict[type[Carrier], Callable[[Any, Array], Array | None]] = {
    BooleanCarrier: _booleans,
    IntegralCarrier: _whole,
    DoubleCarrier: _doubles,
    FloatCarrier: _floats,
    TextCarrier: _texts,
    DateCarrier: _dates,
    TimestampCarrier: _moments,
    TimestampNtzCarrier: _naive_moments,
}
