"""Rows in and out of pandas frames, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import attrs
import numpy as np
import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from millpond.errors import OutputTypeError, UnsupportedColumnError, brief
from millpond.spark.carriers.carrier import Carrier
from millpond.spark.carriers.named_rows import reader_of, row_type
from millpond.spark.carriers.nested import carrier_for
from millpond.spark.carriers.numeric import DoubleCarrier

__all__ = ["RowCodec", "nothing", "nulls_first"]

_BITS = 62
"""Bits of one mask column: all that a bigint has, less the sign and one to spare."""


def _carried_name(index: int) -> str:
    return f"c{index}"


def _mask_name(kind: str, index: int) -> str:
    return f"{kind}{index}"


@attrs.frozen
class RowCodec:
    """Carries rows of a schema between Spark and Python.

    The carrier frame has a column ``c<i>`` for each column, and mask columns: bit *i* of
    ``nulls`` says that column *i* is null where its carrier cannot, bit *i* of ``nans`` (output
    only) that it is NaN, which pandas would take for null.
    """

    names: tuple[str, ...]
    carriers: tuple[Carrier, ...]
    nullable: tuple[bool, ...]

    @classmethod
    def of(cls, schema: StructType) -> RowCodec:
        """The codec of a schema; UnsupportedColumnError for a type that would lose values."""
        carriers = tuple(carrier_for(field.name, field.dataType) for field in schema.fields)
        nullable = tuple(field.nullable for field in schema.fields)
        return cls(tuple(schema.names), carriers, nullable)

    # ---------------------------------------------------------------- in the JVM

    def encode(self, columns: Sequence[Column]) -> list[Column]:
        """The carrier columns of the given columns."""
        carried = []
        for index, (column, carrier) in enumerate(zip(columns, self.carriers, strict=True)):
            encoded = carrier.encode(column)
            if carrier.filler is not None:
                encoded = F.coalesce(encoded, F.lit(carrier.filler).cast(carrier.carried))
            carried.append(encoded.alias(_carried_name(index)))
        return carried + self._null_masks(columns)

    def _null_masks(self, columns: Sequence[Column]) -> list[Column]:
        masks = []
        for first in range(0, len(columns), _BITS):
            mask = F.lit(0).cast("bigint")
            for bit, index in enumerate(range(first, min(first + _BITS, len(columns)))):
                if self.carriers[index].filler is not None:
                    value = F.when(columns[index].isNull(), F.lit(1 << bit).cast("bigint"))
                    mask = mask + F.coalesce(value, F.lit(0).cast("bigint"))
            masks.append(mask.alias(_mask_name("nulls", first)))
        return masks

    def sort_columns(self, positions: Sequence[int]) -> list[Column]:
        """Carrier columns by which rows with equal values in some columns come together."""
        return [F.col(_carried_name(position)) for position in positions]

    def fillers(self) -> dict[str, Any]:
        """What the carrier columns hold in a row that does not come from the user."""
        return {
            **{_carried_name(at): carrier.filler for at, carrier in enumerate(self.carriers)},
            **{_mask_name("nulls", first): 0 for first in range(0, len(self.carriers), _BITS)},
        }

    def output_schema(self) -> StructType:
        """The schema of the carrier frames that the worker returns."""
        fields = [
            StructField(_carried_name(index), carrier.carried)
            for index, carrier in enumerate(self.carriers)
        ]
        for kind in ("nulls", "nans"):
            fields += [
                StructField(_mask_name(kind, first), LongType())
                for first in range(0, len(self.carriers), _BITS)
            ]
        return StructType(fields)

    def restore(self) -> list[Column]:
        """The user's columns out of a frame of :meth:`output_schema`."""
        restored = []
        for index, (name, carrier) in enumerate(zip(self.names, self.carriers, strict=True)):
            column: Column = F.col(_carried_name(index))
            first, bit = index - index % _BITS, F.lit(1 << index % _BITS).cast("bigint")
            if isinstance(carrier, DoubleCarrier):
                is_nan = F.col(_mask_name("nans", first)).bitwiseAND(bit) != 0
                column = F.when(is_nan, F.lit(float("nan"))).otherwise(column)
            if carrier.filler is not None:
                is_null = F.col(_mask_name("nulls", first)).bitwiseAND(bit) != 0
                column = F.when(~is_null, column)
            restored.append(carrier.restore(column).alias(name))
        return restored

    # ---------------------------------------------------------------- in the worker

    def decode(self, frame: pd.DataFrame) -> list[list[Any]]:
        """The user's values of a carrier frame, a list per column."""
        columns = []
        for index, carrier in enumerate(self.carriers):
            values = frame[_carried_name(index)].tolist()
            try:
                columns.append(self._decode_column(frame, index, carrier, values))
            except (OverflowError, ValueError) as error:
                name = self.names[index]
                reason = f"a value cannot be a Python {carrier.python_name} ({error})"
                raise UnsupportedColumnError(name, carrier.python_name, reason) from error
        return columns

    def _decode_column(
        self, frame: pd.DataFrame, index: int, carrier: Carrier, values: list[Any]
    ) -> list[Any]:
        if carrier.filler is None:
            if carrier.identity:
                return values
            decode = carrier.decode
            return [None if value is None else decode(value) for value in values]
        if not carrier.identity:
            values = list(map(carrier.decode, values))
        mask = frame[_mask_name("nulls", index - index % _BITS)].to_numpy()
        nulls = np.flatnonzero(mask & (1 << index % _BITS)) if mask.any() else ()
        for position in nulls:
            values[position] = None
        return values

    def rows(self, columns: list[list[Any]]) -> Iterable[Any]:
        """Decoded columns as named tuples."""
        return map(row_type(list(self.names))._make, zip(*columns, strict=True))

    def pack(self, rows: Sequence[Any], operator_uid: str) -> pd.DataFrame:
        """Rows that a function yielded as a carrier frame.

        Raises:
            OutputTypeError: a row has another number of values or other names than the columns,
                or a value does not fit.
        """
        width = len(self.carriers)
        if set(map(type, rows)) - {tuple} or set(map(len, rows)) != {width}:
            rows = self._in_order(rows, operator_uid)
        frame: dict[str, Any] = {}
        nulls = np.zeros((-(-width // _BITS), len(rows)), dtype=np.int64)
        nans = np.zeros_like(nulls)
        for index, values in enumerate(zip(*rows, strict=True)):
            word, bit = index // _BITS, 1 << index % _BITS
            packed, missing = self._pack_column(index, values, rows, operator_uid)
            if missing:
                nulls[word, missing] |= bit
            if isinstance(self.carriers[index], DoubleCarrier):
                nan = np.isnan(packed)
                nans[word, nan] |= bit
                packed[nan] = 0.0
            frame[_carried_name(index)] = packed
        for kind, masks in (("nulls", nulls), ("nans", nans)):
            for word, mask in enumerate(masks):
                frame[_mask_name(kind, word * _BITS)] = mask
        return pd.DataFrame(frame)

    def _pack_column(
        self, index: int, values: Sequence[Any], rows: Sequence[Any], operator_uid: str
    ) -> tuple[Any, list[int]]:
        """A carrier column, and where it is null (empty if the carrier holds nulls itself)."""
        carrier = self.carriers[index]
        plain = carrier.fits(values)
        packed = list(values) if plain else self._pack_each(index, values, rows, operator_uid)
        if carrier.filler is None:
            column = np.empty(len(packed), dtype=object)
            column[:] = packed
            return column, []
        missing = [] if plain else [at for at, value in enumerate(packed) if value is None]
        for position in missing:
            packed[position] = carrier.filler
        return np.array(packed, dtype=_DTYPES[type(carrier.filler)]), missing

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

    def _in_order(self, rows: Sequence[Any], operator_uid: str) -> list[Sequence[Any]]:
        """Each row's values in the order of the columns."""
        ordered = []
        readers: dict[type, Callable[[Any], Sequence[Any]]] = {}
        for row in rows:
            kind = type(row)
            try:
                if kind not in readers:
                    readers[kind] = reader_of(kind, self.names)
                ordered.append(readers[kind](row))
            except (TypeError, ValueError) as error:
                columns = ", ".join(self.names)
                expected = f"a row of {len(self.names)}"
                raise OutputTypeError(
                    operator_uid, columns, expected, brief(row), str(error)
                ) from None
        return ordered


_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


def nulls_first(value: Any) -> tuple[bool, Any]:
    """A key by which nulls sort before all else."""
    return (False, 0) if value is None else (True, value)


def nothing(count: int) -> Iterable[None]:
    """So many Nones: the timestamps of rows without event time."""
    return repeat(None, count)
