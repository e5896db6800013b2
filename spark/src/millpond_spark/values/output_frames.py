"""Yielded rows as frames in the order of the output's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import countOf, itemgetter
from typing import Any

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
from millpond.errors import OutputTypeError, brief
from millpond.functions.row_conversion import is_single_value, row_reader
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from millpond_spark.values.arrow_columns import arrow_type_of_spark
from millpond_spark.values.carrier import Carrier, packed
from millpond_spark.values.list_columns import arrow_column, list_column, list_offsets
from millpond_spark.values.nested import NestedCarrier, carrier_for
from millpond_spark.values.schemas import quoted, told_apart


def by_position(rows: Sequence[Any], names: tuple[str, ...], operator_uid: str) -> Sequence[Any]:
    """Rows, of any kind that a function may yield, with their values as the columns stand.

    Raises:
        OutputTypeError: a row has another number of values or other names than the columns.
    """
    width = len(names)
    if width == 1 and all(map(is_single_value, set(map(type, rows)))):
        return list(zip(rows, strict=True))
    # Counting takes 25 ns a row for both, sets 40.
    if countOf(map(type, rows), tuple) == len(rows) == countOf(map(len, rows), width):
        return rows
    return _in_order(rows, names, operator_uid)


def _in_order(
    rows: Sequence[Any], names: tuple[str, ...], operator_uid: str
) -> list[Sequence[Any]]:
    """Each row's values in the order of the columns."""
    ordered = []
    readers: dict[type, Callable[[Any], Sequence[Any]]] = {}
    for row in rows:
        kind = type(row)
        try:
            if kind not in readers:
                alone = len(names) == 1 and is_single_value(kind)
                readers[kind] = _single if alone else row_reader(kind, names)
            ordered.append(readers[kind](row))
        except (TypeError, ValueError) as error:
            columns, expected = ", ".join(names), f"a row of {len(names)}"
            raise OutputTypeError(operator_uid, columns, expected, brief(row), str(error)) from None
    return ordered


def _single(value: Any) -> Sequence[Any]:
    """The row of a single column that has a value."""
    return (value,)


_MOST_LISTS = 8
"""So many columns are carried as lists at most.

In bounded jobs, without anything to gain, a row of two columns took 0.7 µs more this way, of eight
1.7, of twenty 7.5. What it saves in a stream, some 2 µs a row, does not depend on the columns.
"""


@attrs.frozen
class OutputCodec:
    """Carries rows of a schema from Python to Spark.

    The carrier frame has a column ``c<i>`` for each column, of its values or of lists of them. One
    of values has the columns as they are, with their own names, where Spark takes what is carried
    for what is declared: a step that it has to analyse costs it a second with a thousand columns.

    Attributes:
        names, carriers, nullable: of the columns.
        lists: whether the carrier frame's columns are of lists.
        as_they_are: whether they are the user's own.
        kinds: Arrow's types of what is carried.
    """

    names: tuple[str, ...]
    carriers: tuple[Carrier, ...]
    nullable: tuple[bool, ...]
    lists: bool
    as_they_are: bool
    kinds: tuple[pa.DataType, ...]

    @classmethod
    def of(cls, schema: StructType, *, in_lists: bool = False) -> OutputCodec:
        """The codec of a schema.

        Args:
            schema: the columns.
            in_lists: whether they are carried as lists, if they are few; it is a gain in streaming
                queries, where PySpark pads the state to the rows of the output.

        Raises:
            UnsupportedColumnError: a column's type would lose values.
        """
        names = tuple(schema.names)
        carriers = tuple(carrier_for(field.name, field.dataType) for field in schema)
        nullable = tuple(field.nullable for field in schema)
        plain = (not isinstance(c, NestedCarrier) and c.restore("c") == "c" for c in carriers)
        lists = in_lists and 0 < len(names) <= _MOST_LISTS
        as_they_are = not lists and told_apart(names) and all(plain)
        kinds = tuple(arrow_type_of_spark(carrier.carried) for carrier in carriers)
        return cls(names, carriers, nullable, lists, as_they_are, kinds)

    @property
    def _carried_names(self) -> tuple[str, ...]:
        """The names of the carrier frame's columns."""
        return self.names if self.as_they_are else tuple(f"c{at}" for at in range(len(self.names)))

    # ---------------------------------------------------------------- in the JVM

    def schema(self) -> StructType:
        """The schema of the carrier frames that the worker returns."""
        schema = StructType()
        for name, carrier in zip(self._carried_names, self.carriers, strict=True):
            schema.add(name, ArrayType(carrier.carried) if self.lists else carrier.carried)
        return schema

    def restored(self, df: DataFrame) -> DataFrame:
        """The user's columns out of a frame of :meth:`schema`."""
        if self.as_they_are:
            return df
        values = list(self._carried_names)
        if self.lists:
            first, *others = values
            df = df.selectExpr(f"posexplode({first}) AS (millpond_at, {first})", *others)
            values = [first, *(f"get({name}, millpond_at)" for name in others)]
        carriers = enumerate(self.carriers)
        nested = {at: each for at, each in carriers if isinstance(each, NestedCarrier)}
        if not nested:
            return df.selectExpr(*self._restored(values, map(quoted, self.names)))
        # Apart from what comes after, which would parse once more for each part.
        parsed = {f"p{at}": F.expr(each.parsed(values[at])) for at, each in nested.items()}
        df = df.withColumns(parsed)
        values = [f"p{at}" if at in nested else value for at, value in enumerate(values)]
        df = df.selectExpr(*self._restored(values, self._carried_names))
        columns = {self._carried_names[at]: each for at, each in nested.items()}
        by_name = {name: each.by_name(F.col(name)) for name, each in columns.items()}
        return df.withColumns(by_name).toDF(*self.names)

    def _restored(self, values: Sequence[str], names: Iterable[str]) -> list[str]:
        """In SQL, the columns out of carried values, under some names."""
        each = zip(self.carriers, values, names, strict=True)
        return [f"{carrier.restore(value)} AS {name}" for carrier, value, name in each]

    # ---------------------------------------------------------------- in the worker

    def columns(self, rows: Sequence[Any], operator_uid: str) -> list[pa.Array]:
        """Rows that a function yielded as columns of what is carried.

        Raises:
            OutputTypeError: a row has another number of values or other names than the columns,
                or a value does not fit.
        """
        rows = by_position(rows, self.names, operator_uid)
        # Column by column: zip(*rows) would make an iterator a row (0.03 µs a row instead of
        # 0.08 for two columns).
        return [
            self.column(index, list(map(itemgetter(index), rows)), rows, operator_uid)
            for index in range(len(self.carriers))
        ]

    def check(self, row: Any, operator_uid: str) -> None:
        """Raise OutputTypeError where ``columns`` would, for a single row."""
        (values,) = rows = by_position([row], self.names, operator_uid)
        for index, value in enumerate(values):
            self._pack_each(index, (value,), rows, operator_uid)

    def frame(self, columns: Sequence[pa.Array]) -> pd.DataFrame:
        """A carrier frame of its columns, which have a row at least."""
        made: Iterable[Any] = map(arrow_column, columns)
        if self.lists:
            offsets = list_offsets(columns)
            made = (list_column(column, offsets) for column in columns)
        return pd.DataFrame(dict(zip(self._carried_names, made, strict=True)), copy=False)

    def column(
        self, index: int, values: Sequence[Any], rows: Sequence[Any], operator_uid: str
    ) -> pa.Array:
        """A column of values as it is carried.

        Raises:
            OutputTypeError: one of them does not fit.
        """
        carrier = self.carriers[index]
        ready = carrier.at_once(values)
        if ready is None and self.nullable[index]:
            ready = _at_once_with_nulls(carrier, values)
        if ready is None:
            ready = self._pack_each(index, values, rows, operator_uid)
        return pa.array(ready, self.kinds[index])

    def _pack_each(
        self, index: int, values: Sequence[Any], rows: Sequence[Any], operator_uid: str
    ) -> list[Any]:
        carrier, nullable = self.carriers[index], self.nullable[index]
        pack = carrier.pack
        made: list[Any] = []
        for value in values:
            try:
                made.append(packed(pack, value, nullable=nullable))
            except (TypeError, ValueError, OverflowError) as error:
                name, expected, row = self.names[index], carrier.python_name, rows[len(made)]
                raise OutputTypeError(
                    operator_uid, name, expected, brief(value), str(error), brief(tuple(row))
                ) from None
        return made


def _at_once_with_nulls(carrier: Carrier, values: Sequence[Any]) -> list[Any] | None:
    """As ``at_once``, of values some of which are null: at most two thirds of a call each."""
    there = [value for value in values if value is not None]
    if len(there) in (0, len(values)):
        return None
    ready = carrier.at_once(there)
    if ready is None:
        return None
    each = iter(ready.tolist() if isinstance(ready, np.ndarray) else ready)
    return [None if value is None else next(each) for value in values]


def joined(parts: Sequence[Sequence[pa.Array]]) -> Sequence[pa.Array]:
    """The columns of several parts as those of one."""
    return parts[0] if len(parts) == 1 else list(map(pa.concat_arrays, zip(*parts, strict=True)))
