"""Tables and DataFrames that vectorized functions return, as columns and as rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Self

import attrs
import pyarrow as pa
from typing_extensions import override

from millpond.errors import ArgumentTypeError, MillpondError
from millpond.functions.row_conversion import row_names
from millpond.types.column_input import column_values, library_of, mixed_values, row_values
from millpond.types.foreign_scalars import python_scalar
from millpond.types.rows import row_maker, row_type

_PLAIN = frozenset(
    {type(None), bool, int, complex, str, bytes, Decimal, date, datetime, time, timedelta}
)
_FAILURES = (ArithmeticError, RecursionError, TypeError, ValueError, pa.ArrowException)


def _has_structs(kind: Any) -> bool:
    """Return whether a type is a struct, or a list of structs at any depth."""
    return pa.types.is_struct(kind) or (pa.types.is_list(kind) and _has_structs(kind.value_type))


def _has_names(value: Any, kind: Any) -> bool:
    """Return whether ``value`` is or contains a row with names. Its Arrow type is a list."""
    if isinstance(value, tuple) and row_names(value) is not None:
        return True
    inner = kind.value_type
    if not pa.types.is_list(inner) or not isinstance(value, Iterable):
        return False
    return any(_has_names(held, inner) for held in value)


def python_values(values: Iterable[Any], what: str) -> list[Any]:
    """Convert objects of NumPy and pandas, and the objects in them, to Python's own types.

    Missing values become None, rows with names become dicts, and arrays become lists. Any other
    object remains unchanged.

    Args:
        values: the objects.
        what: the name of the column in error messages.

    Raises:
        ArgumentTypeError: an object cannot be read.
        ArgumentValueError: a timestamp or duration is not a whole number of microseconds.
    """
    try:
        return [_python_value(value, what) for value in values]
    except MillpondError:
        raise
    except _FAILURES as error:
        raise ArgumentTypeError(what, "values that can be read", str(error)) from None


def _python_value(value: Any, what: str) -> Any:
    if isinstance(value, float):
        return None if value != value else float(value)  # noqa: PLR0124 - true for NaN only
    if type(value) in _PLAIN:
        return None if isinstance(value, Decimal) and value.is_nan() else value
    names = row_names(value)
    if names is not None:
        return {name: _python_value(held, what) for name, held in _named(value, names)}
    if isinstance(value, (list, tuple)):
        return [_python_value(held, what) for held in value]
    if getattr(value, "ndim", 0) and library_of(value):
        return _array_value(value, what)
    plain = python_scalar(value)
    return value if plain is value else _python_value(plain, what)


def _named(row: Any, names: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    """Return pairs of name and value of a row with names."""
    if isinstance(row, Mapping):
        return row.items()
    if isinstance(row, tuple):
        return zip(names, row, strict=True)
    return ((name, getattr(row, name)) for name in names)


def _array_value(array: Any, what: str) -> Any:
    """Convert an array of NumPy or pandas to a list."""
    kind = getattr(getattr(array, "dtype", None), "kind", "O")
    if kind == "V" or (array.ndim > 1 and library_of(array) == "numpy"):
        return [_python_value(held, what) for held in array]
    held = column_values(array, what)
    if kind == "f":
        return [None if value != value else value for value in held]  # noqa: PLR0124 - NaN
    return held if kind in "biu" else [_python_value(value, what) for value in held]


_LOSES = (OverflowError, TypeError, ValueError, pa.ArrowException)


@attrs.frozen
class ResultTable:
    """A table that a vectorized function returned.

    Arrow does not know the declared output types. It would convert dicts to structs with the fields
    of all dicts, and named tuples to lists. So a column of dicts or named tuples remains a list of
    Python values, which is checked value by value.

    Attributes:
        column_names: the names of the columns.
        columns: Arrow columns, or lists of Python values.
        num_rows: the number of values in each column.
    """

    column_names: list[str]
    columns: list[Any]
    num_rows: int

    @classmethod
    def from_returned(cls, value: Any) -> Self | None:
        """Return ``value``, a RecordBatch, Table or DataFrame, as a ResultTable.

        Return None for an object of any other class.

        Raises:
            ArgumentTypeError: Arrow would change values of a column of a DataFrame.
        """
        if _is_frame(value):
            names = [str(name) for name in value.columns]
            columns = [_column(value.iloc[:, at], name) for at, name in enumerate(names)]
            return cls(names, columns, len(value))
        table = table_of(value)
        return None if table is None else cls(table.column_names, table.columns, table.num_rows)


def _column(series: Any, name: str) -> Any:
    """Return a DataFrame's column as an Arrow array or as a list of Python values.

    The result is a list if Arrow would convert dicts to structs, or rows with names to lists.
    """
    objects, what = series.dtype == object, f"column {name!r}"
    try:
        column = pa.Array.from_pandas(series)
    except _LOSES as error:
        if objects:
            return python_values(series, what)
        raise ArgumentTypeError(what, "values of one type", str(error)) from None
    kind = column.type
    is_list = pa.types.is_list(kind)
    if objects and (_has_structs(kind) or (is_list and any(_has_names(v, kind) for v in series))):
        return python_values(series, what)
    _check_objects(series, name, kind)
    return column


def _is_frame(value: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def table_of(value: Any) -> pa.Table | None:
    """Return ``value``, a RecordBatch, Table or DataFrame, as a Table; None for other objects.

    Raises:
        ArgumentTypeError: Arrow cannot hold a column of a DataFrame, or would change its values.
    """
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if not _is_frame(value):
        return None
    table = _frame_table(value)
    for at, field in enumerate(table.schema):
        _check_objects(value.iloc[:, at], field.name, field.type)
    return table


def _frame_table(frame: Any) -> pa.Table:
    """Return a DataFrame as a table; raise ArgumentTypeError if Arrow cannot hold a column."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    except _LOSES as error:
        raise ArgumentTypeError("a DataFrame", "columns of Arrow", str(error)) from None


def _check_objects(series: Any, name: str, kind: pa.DataType) -> None:
    """Raise ArgumentTypeError if Arrow has changed values of a column of objects."""
    mixed = mixed_values(series, kind) if series.dtype == object else ""
    if mixed:
        raise ArgumentTypeError(f"column {name!r}", "values of one kind", mixed)


@attrs.frozen(eq=False)
class _Rows(Iterable[Any]):
    """The rows of ``_columns``. Each row is made during iteration, not before."""

    _columns: list[list[Any]]
    _make: Callable[[tuple[Any, ...]], Any]

    @override
    def __iter__(self) -> Iterator[Any]:
        return map(self._make, zip(*self._columns, strict=True))


def rows_of_table(table: pa.Table | ResultTable) -> Iterable[Any]:
    """Return the rows of ``table``, with names. The result can be iterated over repeatedly.

    Raises:
        ArgumentValueError: a column has timestamps with nanoseconds, or a map with a key twice.
    """
    named = zip(table.column_names, table.columns, strict=True)
    columns = [row_values(column, f"column {name!r}") for name, column in named]
    return _Rows(columns, row_maker(row_type(table.column_names)))
