"""Rows that functions yield as pandas frames, and the user's columns out of those in the JVM.

Columns of numbers and booleans are pandas' masked arrays: exact, with null apart from NaN. PySpark
joins the frames of a task with one that has nothing but nulls, which makes a column of plain ints
one of Python objects; a masked one stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import attrs
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millpond.errors import OutputTypeError, brief
from millpond.spark.carriers.carrier import Carrier, objects
from millpond.spark.carriers.nested import NestedCarrier, carrier_for
from millpond.spark.carriers.row_order import by_position
from millpond.spark.columns import quoted, told_apart

__all__ = ["OutputCodec", "joined"]


@attrs.frozen
class OutputCodec:
    """Carries rows of a schema from Python to Spark.

    The carrier frame has the columns themselves where Spark takes what is carried for what is
    declared, for a step that Spark has to analyse costs it a second with a thousand columns; else
    a column ``c<i>`` for each.

    Attributes:
        names, carriers, nullable: of the columns.
        carried_names: those of the carrier frame.
    """

    names: tuple[str, ...]
    carriers: tuple[Carrier, ...]
    nullable: tuple[bool, ...]
    carried_names: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType) -> OutputCodec:
        """The codec of a schema.

        Raises:
            UnsupportedColumnError: a column's type would lose values.
        """
        names = tuple(schema.names)
        carriers = tuple(carrier_for(field.name, field.dataType) for field in schema)
        nullable = tuple(field.nullable for field in schema)
        plain = (not isinstance(c, NestedCarrier) and c.restore("c") == "c" for c in carriers)
        as_they_are = told_apart(names) and all(plain)
        carried = names if as_they_are else tuple(f"c{at}" for at in range(len(names)))
        return cls(names, carriers, nullable, carried)

    # ---------------------------------------------------------------- in the JVM

    def schema(self) -> StructType:
        """The schema of the carrier frames that the worker returns."""
        pairs = zip(self.carried_names, self.carriers, strict=True)
        return StructType([StructField(name, carrier.carried) for name, carrier in pairs])

    def restored(self, df: DataFrame) -> DataFrame:
        """The user's columns out of a frame of :meth:`schema`."""
        if self.carried_names == self.names:
            return df
        carried = dict(zip(self.carried_names, self.carriers, strict=True))
        nested = {name: each for name, each in carried.items() if isinstance(each, NestedCarrier)}
        if nested:
            # Apart from what comes after, which would parse once more for each part.
            parsed = {name: F.expr(each.parsed(name)) for name, each in nested.items()}
            df = df.withColumns(parsed)
        names = self.carried_names if nested else map(quoted, self.names)
        columns = zip(carried.items(), names, strict=True)
        df = df.selectExpr(*(f"{each.restore(at)} AS {name}" for (at, each), name in columns))
        if not nested:
            return df
        by_name = {name: each.by_name(F.col(name)) for name, each in nested.items()}
        return df.withColumns(by_name).toDF(*self.names)

    # ---------------------------------------------------------------- in the worker

    def pack(self, rows: Sequence[Any], operator_uid: str) -> pd.DataFrame:
        """Rows that a function yielded as a carrier frame.

        Raises:
            OutputTypeError: a row has another number of values or other names than the columns,
                or a value does not fit.
        """
        return self.frame(self.columns(rows, operator_uid))

    def columns(self, rows: Sequence[Any], operator_uid: str) -> list[Any]:
        """The columns of that frame; raises as ``pack`` does."""
        rows = by_position(rows, self.names, operator_uid)
        # Column by column: zip(*rows) would make an iterator a row (0.03 µs a row instead of
        # 0.08 for two columns).
        return [
            self.column(index, list(map(itemgetter(index), rows)), rows, operator_uid)
            for index in range(len(self.carriers))
        ]

    def check(self, row: Any, operator_uid: str) -> None:
        """Raise OutputTypeError where ``pack`` would, for a single row."""
        (values,) = rows = by_position([row], self.names, operator_uid)
        for index, value in enumerate(values):
            self._pack_each(index, (value,), rows, operator_uid)

    def frame(self, columns: Sequence[Any]) -> pd.DataFrame:
        """A carrier frame of its columns."""
        return pd.DataFrame(dict(zip(self.carried_names, columns, strict=True)), copy=False)

    def column(
        self, index: int, values: Sequence[Any], rows: Sequence[Any], operator_uid: str
    ) -> Any:
        """A column of values as it is carried.

        Raises:
            OutputTypeError: one of them does not fit.
        """
        carrier = self.carriers[index]
        plain = carrier.at_once(values)
        if plain is not None:
            nulls = np.zeros(len(values), np.bool_)
            return plain if carrier.filler is None else self.masked(index, plain, nulls)
        packed = self._pack_each(index, values, rows, operator_uid)
        if carrier.filler is None:
            return objects(packed)
        nulls = np.array([value is None for value in packed], np.bool_)
        filled = [carrier.filler if value is None else value for value in packed]
        return self.masked(index, filled, nulls)

    def masked(self, index: int, values: Any, nulls: Any) -> Any:
        """A column of numbers or booleans, with a mask of its nulls."""
        dtype, make = _MASKED[type(self.carriers[index].filler)]
        return make(np.asarray(values, dtype), nulls)

    def _pack_each(
        self, index: int, values: Sequence[Any], rows: Sequence[Any], operator_uid: str
    ) -> list[Any]:
        carrier, nullable = self.carriers[index], self.nullable[index]
        pack = carrier.pack
        packed: list[Any] = []
        for value in values:
            try:
                packed.append(None if value is None and nullable else pack(value))
            except (TypeError, ValueError, OverflowError) as error:
                name, expected, row = self.names[index], carrier.python_name, rows[len(packed)]
                raise OutputTypeError(
                    operator_uid, name, expected, brief(value), str(error), brief(tuple(row))
                ) from None
        return packed


def joined(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The columns of several parts as those of one."""
    if len(parts) == 1:
        return parts[0]
    return [
        np.concatenate(column)
        if isinstance(column[0], np.ndarray)
        else type(column[0])._concat_same_type(column)  # noqa: SLF001 - a method of pandas' interface
        for column in zip(*parts, strict=True)
    ]


_MASKED: dict[type, tuple[Any, Callable[[Any, Any], Any]]] = {
    bool: (np.bool_, pd.arrays.BooleanArray),
    int: (np.int64, pd.arrays.IntegerArray),
    float: (np.float64, pd.arrays.FloatingArray),
}
