"""Frames of carried rows as record batches, and tables that functions return as such frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
from millpond.arguments import nearest
from millpond.errors import OutputTypeError, UnsupportedColumnError, brief
from millpond.operator.arrow_results import ResultTable
from millpond.types.column_input import column_values
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from millpond_spark.values.arrow_columns import arrow_array, carried_column
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.nested import NestedCarrier
from millpond_spark.values.output_frames import OutputCodec


def batch_of(codec: RowCodec, frame: pd.DataFrame) -> pa.RecordBatch:
    """The user's columns of a carrier frame, of their own types.

    Raises:
        UnsupportedColumnError: a value of a column cannot be had in Python.
    """
    arrays = [carried_array(codec, frame, index) for index in range(codec.width)]
    return pa.RecordBatch.from_arrays(arrays, names=list(codec.names[: codec.width]))


def carried_array(codec: RowCodec, frame: pd.DataFrame, index: int) -> Any:
    """One column of a carrier frame as an Arrow array."""
    values, nulls = codec.carried_values(frame, index)
    carrier, kind = codec.carriers[index], codec.arrow_types[index]
    try:
        return arrow_array(carrier, kind, values, nulls)
    except (OverflowError, ValueError) as error:
        reason = f"a value cannot be in a column of {kind} ({error})"
        raise UnsupportedColumnError(codec.names[index], str(kind), reason) from error


def packed_table(codec: OutputCodec, table: ResultTable, operator_uid: str) -> pd.DataFrame:
    """A table that a function returned as a carrier frame.

    Raises:
        OutputTypeError: it has other columns than the output, or a value does not fit.
    """
    columns = []
    for index, position in enumerate(_positions(codec, table, operator_uid)):
        given = table.columns[position]
        columns.append(_packed(codec, index, given, operator_uid))
    return codec.frame(columns)


def _packed(codec: OutputCodec, index: int, given: Any, operator_uid: str) -> Any:
    """A column of Arrow, or of Python's values, as it is carried."""
    values = given
    if not isinstance(given, list):
        array = _joined(given)
        column = carried_column(codec.carriers[index], array)
        if column is not None and (codec.nullable[index] or not array.null_count):
            return column
        carrier = codec.carriers[index]
        if isinstance(carrier, NestedCarrier) and _is_guessed(array.type, carrier.declared):
            reason = "Arrow makes structs of dicts, of the fields of all: give it pa.map_ as type"
            got = f"a column of {array.type}"
            name = codec.names[index]
            raise OutputTypeError(operator_uid, name, carrier.python_name, got, reason)
        values = _listed(codec, index, array, operator_uid)
    return codec.column(index, values, list(zip(values, strict=True)), operator_uid)


def _positions(codec: OutputCodec, table: ResultTable, operator_uid: str) -> Iterable[int]:
    """Where each output column stands in a table: by name, whatever their order."""
    names, found = codec.names, table.column_names
    if tuple(found) == names:
        return range(len(names))
    missing, unknown = Counter(names) - Counter(found), Counter(found) - Counter(names)
    if not missing and not unknown and len(set(names)) == len(names):
        return [found.index(name) for name in names]
    reasons = [
        f"{what}: {', '.join(which)}"
        for what, which in (("missing", missing), ("not a column", unknown))
        if which
    ]
    hints = [(name, nearest(name, missing or names)) for name in unknown]
    meant = ", ".join(f"{column} by {name}" for name, column in hints if column is not None)
    reason = "; ".join(reasons) or "two columns have the same name"
    reason += f"; did you mean {meant}?" if meant else ""
    columns = ", ".join(names)
    got = f"a table of the columns {', '.join(found)}"
    raise OutputTypeError(operator_uid, columns, f"a table of {len(names)}", got, reason)


def _joined(column: Any) -> Any:
    """A column, chunked or not, as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _listed(codec: OutputCodec, index: int, array: Any, operator_uid: str) -> list[Any]:
    """The values of a column that has no quick way; maps, which Arrow has as pairs, as dicts."""
    name, expected = codec.names[index], codec.carriers[index].python_name
    try:
        return [_natural(value, array.type) for value in column_values(array, name)]
    except (pa.ArrowException, ValueError) as error:
        got = f"a column of {array.type}"
        raise OutputTypeError(operator_uid, name, expected, got, brief(error)) from None


def _is_guessed(kind: pa.DataType, declared: DataType) -> bool:
    """Whether a column of Arrow has structs where maps are declared, at any depth."""
    if isinstance(declared, ArrayType) and hasattr(kind, "value_type"):
        return _is_guessed(kind.value_type, declared.elementType)
    if isinstance(declared, StructType) and pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        fields = [field for field in declared if field.name in types]
        return any(_is_guessed(types[field.name], field.dataType) for field in fields)
    if isinstance(declared, MapType) and pa.types.is_map(kind):
        return _is_guessed(kind.item_type, declared.valueType)
    return isinstance(declared, MapType) and pa.types.is_struct(kind)


def _natural(value: Any, kind: pa.DataType) -> Any:
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        pairs = [
            (_natural(key, kind.key_type), _natural(item, kind.item_type)) for key, item in value
        ]
        made = {_hashable(key): item for key, item in pairs}
        if len(made) < len(pairs):
            raise ValueError(f"a map has a key twice: {brief(value)}")
        return made
    if pa.types.is_struct(kind):
        return {field.name: _natural(value[field.name], field.type) for field in kind}
    return [_natural(item, kind.value_type) for item in value]


def _hashable(key: Any) -> Any:
    """A map's key as a tuple, where it is a struct or an array."""
    if isinstance(key, dict):
        return tuple(map(_hashable, key.values()))
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
