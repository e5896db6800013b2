"""Rows in pandas frames on their way to functions, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import attrs
import numpy as np
import pandas as pd
from millpond.errors import UnsupportedColumnError
from millpond.types.rows import row_maker, row_type
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millpond_spark.values.arrow_columns import arrow_type_of_spark
from millpond_spark.values.carrier import Carrier
from millpond_spark.values.folds import Fold
from millpond_spark.values.nested import NestedCarrier, carrier_for
from millpond_spark.values.schemas import quoted, told_apart

_BITS = 62
"""Bits of one mask column: all that a bigint has, less the sign and one to spare."""


def _carried_name(index: int) -> str:
    return f"c{index}"


def plain_name(index: int) -> str:
    """What SQL calls a column of the user's, whatever its own name."""
    return f"r{index}"


def _mask_name(index: int) -> str:
    return f"nulls{index}"


@attrs.frozen
class RowCodec:
    """Carries rows of a schema from Spark to Python.

    The carrier frame has a column ``c<i>`` for each column, and mask columns: bit *i* of
    ``nulls`` says that column *i* is null where its carrier cannot. Of a wide row's columns many
    are in arrays instead.

    Attributes:
        names, carriers, arrow_types: of the columns.
        width: how many of them are the rows'; what stands behind them are keys and the like.
        folds: columns that come in arrays, for each type one.
    """

    names: tuple[str, ...]
    carriers: tuple[Carrier, ...]
    width: int
    arrow_types: tuple[Any, ...] = ()
    folds: tuple[Fold, ...] = ()

    @classmethod
    def of(cls, schema: StructType, beyond: Sequence[StructField] = ()) -> RowCodec:
        """The codec of a schema, and of columns behind it that functions do not see in a row.

        Raises:
            UnsupportedColumnError: a column's type would lose values.
        """
        fields = [*schema.fields, *beyond]
        carriers = tuple(carrier_for(field.name, field.dataType) for field in fields)
        names = tuple(field.name for field in fields)
        arrow_types = tuple(arrow_type_of_spark(field.dataType) for field in fields)
        return cls(names, carriers, len(schema), arrow_types)

    # ---------------------------------------------------------------- in the JVM

    def encoded(
        self, df: DataFrame, others: Callable[[Sequence[str]], Sequence[str]] = lambda _: ()
    ) -> DataFrame:
        """The carrier columns of a frame that has the columns, and others.

        A step that Spark has to analyse takes it 0.2 s and more with a thousand columns, in
        each batch once more. So columns are named anew only where SQL might confuse them.

        Args:
            df: the frame.
            others: of the columns' names in SQL, what else to select, in SQL.
        """
        titles: Sequence[str] = self.names
        if not told_apart(titles):
            titles = list(map(plain_name, range(len(titles))))
            df = df.toDF(*titles)
        names = list(map(quoted, titles))
        by_position = {
            titles[index]: carrier.by_position(F.col(names[index]))
            for index, carrier in self._nested()
        }
        df = df.withColumns(by_position) if by_position else df
        alone = self._alone()
        carried = [*self._encoded(alone, names), *self._null_masks(alone, names), *others(names)]
        if not self.folds:
            return df.selectExpr(*carried)
        gathered = [fold.gathered(names) for fold in self.folds]
        arrays = {name: column for fold in self.folds for name, column in fold.encoded().items()}
        return df.selectExpr(*carried, *gathered).withColumns(arrays)

    def _alone(self) -> list[int]:
        """The positions of the columns that cross by themselves."""
        folded = {position for fold in self.folds for position in fold.positions}
        return [position for position in range(len(self.carriers)) if position not in folded]

    def _nested(self) -> list[tuple[int, NestedCarrier]]:
        pairs = enumerate(self.carriers)
        return [(index, each) for index, each in pairs if isinstance(each, NestedCarrier)]

    def _encoded(self, positions: Iterable[int], names: Sequence[str]) -> list[str]:
        return [f"{self.carriers[at].filled(names[at])} AS {_carried_name(at)}" for at in positions]

    def _null_masks(self, positions: Sequence[int], names: Sequence[str]) -> list[str]:
        words = ((first, set(positions) & set(indices)) for first, indices in self._words())
        return [
            f"{self._null_mask(first, sorted(indices), names)} AS {_mask_name(first)}"
            for first, indices in words
            if indices
        ]

    def _null_mask(self, first: int, indices: Iterable[int], names: Sequence[str]) -> str:
        bits = [
            f"CASE WHEN {names[index]} IS NULL THEN {1 << index - first}L ELSE 0L END"
            for index in indices
            if self.carriers[index].filler is not None
        ]
        return " + ".join(bits) or "0L"

    def _words(self) -> Iterable[tuple[int, range]]:
        """The first column of each mask column, and all that it stands for."""
        width = len(self.carriers)
        return ((at, range(at, min(at + _BITS, width))) for at in range(0, width, _BITS))

    def sort_columns(self, positions: Sequence[int]) -> list[Column]:
        """Carrier columns by which rows with equal values in some columns come together."""
        return [F.col(name) for name in self.carried_names(positions)]

    @staticmethod
    def carried_names(positions: Sequence[int]) -> list[str]:
        """The names of the carrier columns of some columns."""
        return [_carried_name(position) for position in positions]

    def fillers(self) -> dict[str, str]:
        """What the carrier columns hold, in SQL, in a row that does not come from the user."""
        masks = {_mask_name(first): "0L" for first, _ in self._words()}
        return masks | {
            _carried_name(index): carrier.nothing for index, carrier in enumerate(self.carriers)
        }

    def alone(self, positions: Sequence[int]) -> dict[str, str]:
        """What the carrier columns hold, in SQL, in a row that has the columns at positions only.

        Column *i* is ``r<i>`` there.
        """
        names = list(map(plain_name, range(len(self.names))))
        known = {_carried_name(at): self.carriers[at].filled(names[at]) for at in positions}
        masks = {
            _mask_name(first): self._null_mask(first, set(positions) & set(indices), names)
            for first, indices in self._words()
        }
        return self.fillers() | known | masks

    # ---------------------------------------------------------------- in the worker

    def decode(
        self, frame: pd.DataFrame, positions: Sequence[int] | None = None
    ) -> list[list[Any]]:
        """The user's values of a carrier frame, a list per column: all or those at positions."""
        folds = self.folds if positions is None else ()
        folded = {at: column for fold in folds for at, column in fold.columns(frame).items()}
        columns = []
        for index in range(len(self.carriers)) if positions is None else positions:
            carrier = self.carriers[index]
            values, missing = folded.get(index) or self._carried_column(frame, index)
            try:
                columns.append(_decoded(carrier, values, missing))
            except (OverflowError, ValueError) as error:
                name = self.names[index]
                reason = f"a value cannot be a Python {carrier.python_name} ({error})"
                raise UnsupportedColumnError(name, carrier.python_name, reason) from error
        return columns

    def _carried_column(self, frame: pd.DataFrame, index: int) -> tuple[list[Any], Iterable[int]]:
        """A column as it is carried, and in which rows its filler stands for null."""
        nulls = None if self.carriers[index].filler is None else self._nulls(frame, index)
        values = frame[_carried_name(index)].tolist()
        return values, () if nulls is None else np.flatnonzero(nulls)

    @staticmethod
    def _nulls(frame: pd.DataFrame, index: int) -> Any:
        """Where a column is null that has a bit for it; None where it nowhere is."""
        mask = frame[_mask_name(index - index % _BITS)].to_numpy()
        return (mask & (1 << index % _BITS)) != 0 if mask.any() else None

    def carried_values(self, frame: pd.DataFrame, index: int) -> tuple[Any, Any]:
        """A column of a carrier frame as it is carried, and the mask of its nulls, if any."""
        values = frame[_carried_name(index)].to_numpy()
        return values, None if values.dtype == object else self._nulls(frame, index)

    def event_times(self, frame: pd.DataFrame, index: int) -> list[int | None]:
        """A column of timestamps, which crosses by itself, in ms.

        Of what is carried, microseconds: a tenth of what it takes from the decoded ones.
        """
        micros, nulls = self.carried_values(frame, index)
        times: list[int | None] = (micros // 1000).tolist()
        for position in () if nulls is None else np.flatnonzero(nulls):
            times[position] = None
        return times

    def rows(self, columns: list[list[Any]]) -> Iterable[Any]:
        """Decoded columns as rows."""
        make = row_maker(row_type(self.names[: self.width]))
        return map(make, zip(*columns[: self.width], strict=True))


def _decoded(carrier: Carrier, values: list[Any], missing: Iterable[int]) -> list[Any]:
    """The user's values of carried ones; the list may be used."""
    if carrier.filler is None:
        if carrier.identity:
            return values
        decode = carrier.decode
        return [None if value is None else decode(value) for value in values]
    if not carrier.identity:
        values = carrier.decode_many(values)
    for position in missing:
        values[position] = None
    return values


def nulls_first(value: Any) -> tuple[int, Any]:
    """A key by which nulls sort before all else, and NaN after it, as Spark sorts.

    So do those within structs and arrays, a shorter array before one that it begins.
    """
    if value is None:
        return 0, 0
    if isinstance(value, (tuple, list)):
        return 1, list(map(nulls_first, value))
    return (1, value) if value == value else (2, 0)  # noqa: PLR0124 - NaN is not itself


def nothing(count: int) -> Iterable[None]:
    """So many Nones: the timestamps of rows without event time."""
    return repeat(None, count)
