"""One subtask of a vectorized function: frames of rows in, tables out."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa

from millpond.backend.chosen_keys import Frame
from millpond.errors import ArgumentTypeError, FunctionResultError, brief
from millpond.runtime.keyed_operator import KeyedOperator
from millpond.runtime.user_code import place_of_method
from millpond.runtime.vectorized import VectorizedContext, VectorizedProcessFunction
from millpond.types.listed import listed
from millpond.types.mixtures import mixture
from millpond.types.rows import row_maker, row_type

__all__ = ["RowFrame", "VectorizedOperator", "rows_of_table", "table_of"]


@attrs.frozen
class RowFrame:
    """Rows that are processed at once, those of a key together.

    Attributes:
        rows: the rows.
        keys: their distinct keys, checked.
        groups: the key group of each key.
        starts: where its rows begin.
        column: the keys as functions see them.
        timestamps: the rows' event times, an Arrow array; None where there are none.
    """

    rows: pa.RecordBatch
    keys: list[Any]
    groups: list[int]
    starts: Any
    column: Any
    timestamps: Any = None


class VectorizedOperator(KeyedOperator):
    """Runs a VectorizedProcessFunction on a keyed backend."""

    _function: VectorizedProcessFunction

    def process_frame(self, frame: RowFrame) -> Iterator[pa.Table]:
        """Process a frame; yields the tables that the function returns."""
        current = self._backend.current
        tables = self._tables(frame)
        try:
            while (table := self._next_of(tables)) is not None:
                yield table
        finally:
            tables.close()
            current.frame = None
            current.forget()

    def _next_of(self, tables: Iterator[pa.Table]) -> pa.Table | None:
        """The next table; where nothing waits at a ``yield``, a GeneratorExit is the function's."""
        try:
            return next(tables, None)
        except BaseException as error:
            raise self._failure("process_batch", error) from error

    def process_rows(self, frame: RowFrame, output: list[Any]) -> None:
        """Process a frame; what comes out of it is appended as rows."""
        for table in self.process_frame(frame):
            output.extend(rows_of_table(table))

    def _given(self, rows: pa.RecordBatch) -> Any:
        if self._function.frames == "arrow":
            return rows
        return rows.to_pandas(integer_object_nulls=True, date_as_object=True)

    def _tables(self, frame: RowFrame) -> Generator[pa.Table, None, None]:
        current = self._backend.current
        keys = Frame(current, frame.keys, frame.groups, frame.column)
        current.forget()
        current.frame = keys
        context: VectorizedContext[Any] = VectorizedContext(
            keys, frame.starts, frame.rows, frame.timestamps, self.timers
        )
        method = self._function.process_batch
        result = method(self._given(frame.rows), context)
        table = table_of(result)
        if table is not None:
            yield table
        elif result is not None:
            if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping, tuple)):
                raise _refused(method, result)
            for each in result:
                table = table_of(each)
                if table is None:
                    raise _refused(method, each)
                yield table


def table_of(value: Any) -> pa.Table | None:
    """A RecordBatch, Table or DataFrame as a table; None for anything else."""
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        table = _of_frame(value)
        _check_objects(value, table.schema)
        return table
    return None


def _of_frame(frame: Any) -> pa.Table:
    """A DataFrame as a table; ArgumentTypeError names the column that is none of Arrow's."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    except (OverflowError, TypeError, ValueError, pa.ArrowException) as error:
        for at, name in enumerate(frame.columns):
            try:
                pa.Array.from_pandas(frame.iloc[:, at])
            except (OverflowError, TypeError, ValueError, pa.ArrowException) as own:
                what = f"column {name!r}"
                raise ArgumentTypeError(what, "values of one type", str(own)) from None
        raise ArgumentTypeError("a DataFrame", "columns of Arrow", str(error)) from None


def _check_objects(frame: Any, schema: pa.Schema) -> None:
    """Refuse a DataFrame with a column of objects some of which Arrow has changed."""
    for at, field in enumerate(schema):
        column = frame.iloc[:, at]
        mixed = mixture(column, field.type) if column.dtype == object else ""
        if mixed:
            raise ArgumentTypeError(f"column {field.name!r}", "values of one kind", mixed)


def _refused(method: Any, value: Any) -> FunctionResultError:
    place = place_of_method(method)
    file, line = ("", 0) if place is None else (place.file, place.line)
    name = getattr(method, "__qualname__", repr(method))
    return FunctionResultError(name, file, line, brief(value), "tables")


def rows_of_table(table: pa.Table) -> Iterable[Any]:
    """A table as rows with names.

    Raises:
        ArgumentValueError: a column has moments with nanoseconds.
    """
    columns = [listed(table[at], f"column {name!r}") for at, name in enumerate(table.column_names)]
    return map(row_maker(row_type(table.column_names)), zip(*columns, strict=True))
