"""Tables of callers and of vectorized functions: Arrow's, and pandas' DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import attrs
import pyarrow as pa
from typing_extensions import override

from millpond.errors import ArgumentTypeError
from millpond.operator.frame_objects import are_guessed, natural
from millpond.types.listed import listed
from millpond.types.mixtures import mixture
from millpond.types.rows import row_maker, row_type

__all__ = ["ResultTable", "rows_of_table", "table_of"]

_LOSES = (OverflowError, TypeError, ValueError, pa.ArrowException)


@attrs.frozen
class ResultTable:
    """What a vectorized function returned.

    Arrow makes a struct of dicts, of the fields of all of them, and lists of rows with names, and
    knows no declared type. So the objects of a DataFrame that it would have to guess at stay what
    they are, for the output's columns to judge as they judge what other functions yield.

    Attributes:
        column_names: the names of the columns, as they stand.
        columns: of Arrow, or lists of Python's values.
        num_rows: how many values each column has.
    """

    column_names: list[str]
    columns: list[Any]
    num_rows: int

    @classmethod
    def of(cls, value: Any) -> Self | None:
        """A RecordBatch, Table or DataFrame; None for anything else.

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
    """A column of a DataFrame as Arrow has it, or its objects where Arrow would guess."""
    objects, what = series.dtype == object, f"column {name!r}"
    try:
        column = pa.Array.from_pandas(series)
    except _LOSES as error:
        if objects:
            return natural(series, what)
        raise ArgumentTypeError(what, "values of one type", str(error)) from None
    if objects and are_guessed(series, column.type):
        return natural(series, what)
    _check_objects(series, name, column.type)
    return column


def _is_frame(value: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def table_of(value: Any) -> pa.Table | None:
    """A RecordBatch, Table or DataFrame as a table; None for anything else.

    Raises:
        ArgumentTypeError: a column of a DataFrame makes no column of Arrow's, or a changed one.
    """
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if not _is_frame(value):
        return None
    table = _of_frame(value)
    for at, field in enumerate(table.schema):
        _check_objects(value.iloc[:, at], field.name, field.type)
    return table


def _of_frame(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    except _LOSES as error:
        for at, name in enumerate(frame.columns):
            try:
                pa.Array.from_pandas(frame.iloc[:, at])
            except _LOSES as own:
                what = f"column {name!r}"
                raise ArgumentTypeError(what, "values of one type", str(own)) from None
        raise ArgumentTypeError("a DataFrame", "columns of Arrow", str(error)) from None


def _check_objects(series: Any, name: str, kind: pa.DataType) -> None:
    """Refuse a column of objects some of which Arrow has changed."""
    mixed = mixture(series, kind) if series.dtype == object else ""
    if mixed:
        raise ArgumentTypeError(f"column {name!r}", "values of one kind", mixed)


@attrs.frozen(eq=False)
class _Rows(Iterable[Any]):
    _columns: list[list[Any]]
    _make: Callable[[tuple[Any, ...]], Any]

    @override
    def __iter__(self) -> Iterator[Any]:
        return map(self._make, zip(*self._columns, strict=True))


def rows_of_table(table: pa.Table | ResultTable) -> Iterable[Any]:
    """A table as rows with names, which can be gone through again.

    Raises:
        ArgumentValueError: a column has moments with nanoseconds.
    """
    named = zip(table.column_names, table.columns, strict=True)
    columns = [listed(column, f"column {name!r}") for name, column in named]
    return _Rows(columns, row_maker(row_type(table.column_names)))
