"""Wide rows: columns of one type cross to Python together, as an array.

Spark analyses, compiles and converts an expression for each column, in each batch once more: with
a thousand columns that is most of what a small batch costs. An array takes one expression for all.
Its elements are computed one by one and not by compiled code, which a narrow row would feel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

import attrs
import numpy as np
import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from millpond_spark.values.carrier import Carrier
from millpond_spark.values.nested import NestedCarrier

WIDE_ROW = 256
WIDE_FOLD = 32
"""So many columns make a row wide, and so many of one type are worth an array."""


@attrs.frozen
class Fold:
    """Columns of one type, which cross as an array.

    A carrier frame has a column ``f<i>`` of the arrays and, where the carrier cannot say which
    elements are null, ``fn<i>`` of arrays of booleans, which is null in a row without nulls.

    Attributes:
        index: the fold's number.
        positions: of the columns, in the order of the array.
        carrier: of their type.
    """

    index: int
    positions: tuple[int, ...]
    carrier: Carrier

    @property
    def name(self) -> str:
        """The column of arrays."""
        return f"f{self.index}"

    @property
    def _nulls_name(self) -> str:
        return f"fn{self.index}"

    def gathered(self, names: Sequence[str]) -> str:
        """In SQL, the array of the columns as they are, of a frame's names of columns."""
        return f"array({', '.join(names[at] for at in self.positions)}) AS {self.name}"

    def encoded(self) -> dict[str, Column]:
        """The columns of the carrier frame, by name, of a frame with what is gathered."""
        arrays = {self.name: f"transform({self.name}, x -> {self.carrier.filled('x')})"}
        if self.carrier.filler is not None:
            nulls = f"transform({self.name}, x -> x IS NULL)"
            found = f"exists({self.name}, x -> x IS NULL)"
            arrays[self._nulls_name] = f"CASE WHEN {found} THEN {nulls} END"
        return {name: F.expr(array) for name, array in arrays.items()}

    def columns(self, frame: pd.DataFrame) -> dict[int, tuple[list[Any], list[int]]]:
        """By position, each column as it is carried, and in which rows its filler is for null."""
        arrays, width = frame[self.name].tolist(), len(self.positions)
        missing: list[list[int]] = [[] for _ in self.positions]
        if self.carrier.filler is None:
            values = list(chain.from_iterable(arrays))
        else:
            values = np.concatenate(arrays).tolist() if arrays else []
            for row, nulls in enumerate(frame[self._nulls_name].tolist()):
                for at in () if nulls is None else np.flatnonzero(nulls):
                    missing[at].append(row)
        return {
            position: (values[at::width], missing[at]) for at, position in enumerate(self.positions)
        }


def folds_of(
    fields: Sequence[StructField], carriers: Sequence[Carrier], alone: Collection[int]
) -> tuple[Fold, ...]:
    """The folds of a row's columns, none where it is not wide.

    Args:
        fields: all columns.
        carriers: theirs.
        alone: the positions of columns that are needed by themselves.
    """
    if len(fields) < WIDE_ROW:
        return ()
    by_type: dict[str, list[int]] = {}
    for position, field in enumerate(fields):
        if position not in alone and not isinstance(carriers[position], NestedCarrier):
            by_type.setdefault(field.dataType.simpleString(), []).append(position)
    wide = [positions for positions in by_type.values() if len(positions) >= WIDE_FOLD]
    return tuple(
        Fold(index, tuple(positions), carriers[positions[0]])
        for index, positions in enumerate(wide)
    )
