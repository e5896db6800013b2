"""One subtask of a vectorized function: frames of rows in, tables out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa

from millpond.backend.bulk_keys import Frame
from millpond.errors import ArgumentValueError
from millpond.functions.results import refusal
from millpond.functions.vectorized import VectorizedContext, VectorizedProcessFunction
from millpond.operator.arrow_results import ResultTable, rows_of_table
from millpond.operator.keyed_operator import KeyedOperator


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

    def process_frame(self, frame: RowFrame) -> Iterator[ResultTable]:
        """Process a frame; yields the tables that the function returns.

        Raises:
            ArgumentValueError: the function takes DataFrames, and pandas cannot have a column.
        """
        current = self._backend.current
        tables = self._tables(self._given(frame.rows), frame)
        try:
            while (table := self._next_of(tables)) is not None:
                yield table
        finally:
            tables.close()
            current.frame = None
            current.forget()

    def _next_of(self, tables: Iterator[ResultTable]) -> ResultTable | None:
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
        try:
            return _frame_of(rows)
        except pa.ArrowException:
            for at, name in enumerate(rows.schema.names):
                try:
                    _frame_of(rows.select([at]))
                except pa.ArrowException as error:
                    expected = "values that pandas can have, with each key of a map once"
                    raise ArgumentValueError(f"column {name!r}", expected, str(error)) from None
            raise

    def _tables(self, given: Any, frame: RowFrame) -> Generator[ResultTable, None, None]:
        current = self._backend.current
        keys = Frame(current, frame.keys, frame.groups, frame.column)
        current.forget()
        current.frame = keys
        context: VectorizedContext[Any] = VectorizedContext(
            keys, frame.starts, frame.rows, frame.timestamps, self.timers
        )
        method = self._function.process_batch
        result = method(given, context)
        table = ResultTable.of(result)
        if table is not None:
            yield table
        elif result is not None:
            if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping, tuple)):
                raise refusal(method, result, "tables")
            for each in result:
                table = ResultTable.of(each)
                if table is None:
                    raise refusal(method, each, "tables")
                yield table


def _frame_of(rows: pa.RecordBatch) -> Any:
    pairs = any(_has_nested_keys(field.type) for field in rows.schema)
    maps = None if pairs else "strict"
    return rows.to_pandas(integer_object_nulls=True, date_as_object=True, maps_as_pydicts=maps)


def _has_nested_keys(kind: Any) -> bool:
    """Whether a type has a map whose keys no dict can have, at some depth."""
    if pa.types.is_map(kind) and pa.types.is_nested(kind.key_type):
        return True
    return any(_has_nested_keys(kind.field(at).type) for at in range(kind.num_fields))
