"""The encoding of input rows: pandas frames of carried columns, called carrier frames.

A carried column is a column that Spark has encoded so that pandas does not change its values, see
``millpond_spark.values.carrier``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from millpond.errors import UnsupportedColumnError
from millpond.types.rows import row_maker, row_type
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millpond_spark.values.carrier import Carrier
from millpond_spark.values.nested import NestedCarrier, arrow_type_of_spark, carrier_for

_BITS = 62
"""The number of columns whose null bits are in one mask column. A mask column is a bigint."""


def plain_name(index: int) -> str:
    """Return the name that SQL uses for the user's column at the position `index`."""
    return f"r{index}"


@attrs.frozen
class RowCodec:
    """Encodes the rows of a DataFrame in the JVM, and decodes them in a worker.

    The encoded rows are called carrier frames. A carrier frame has a carried column ``c<i>`` for
    each column *i* of the DataFrame, and mask columns ``nulls0``, ``nulls62`` and so on. Bit *i* -
    *f* of the mask column ``nulls<f>`` is set if a filler replaces a null in ``c<i>``.

    Attributes:
        names: the names of the columns.
        carriers: the converter of each column.
        width: the number of columns that functions see. Further columns may have keys and times.
        arrow_types: the Arrow types of the columns, as vectorized functions see them.
    """

    names: tuple[str, ...]
    carriers: tuple[Carrier, ...]
    width: int
    arrow_types: tuple[Any, ...] = ()

    @classmethod
    def from_schema(cls, schema: StructType, beyond: Sequence[StructField] = ()) -> RowCodec:
        """Return the codec of the columns in `schema`, followed by the columns `beyond`.

        Args:
            schema: the columns that functions see.
            beyond: further columns, which functions do not see.

        Raises:
            UnsupportedColumnError: Millpond does not support a column's type.
        """
        fields = [*schema.fields, *beyond]
        return cls(
            names=tuple(field.name for field in fields),
            carriers=tuple(carrier_for(field.name, field.dataType) for field in fields),
            width=len(schema),
            arrow_types=tuple(arrow_type_of_spark(field.dataType) for field in fields),
        )

    # ---------------------------------------------------------------- in the JVM

    def encoded(self, df: DataFrame, *others: str) -> DataFrame:
        """Return the rows of `df` as carrier frames, with further columns.

        Args:
            df: the rows.
            others: the SQL of the further columns. It names the columns of `df` by ``plain_name``.
        """
        names = self.plain_names
        by_position = {
            name: carrier.by_position(F.col(name))
            for name, carrier in zip(names, self.carriers, strict=True)
            if isinstance(carrier, NestedCarrier)
        }
        df = df.toDF(*names)
        df = df.withColumns(by_position) if by_position else df
        columns = self.expressions(range(len(names)))
        return df.selectExpr(*(f"{sql} AS {name}" for name, sql in columns.items()), *others)

    @property
    def plain_names(self) -> list[str]:
        """The names that SQL uses for the user's columns."""
        return list(map(plain_name, range(len(self.names))))

    def expressions(self, positions: Collection[int]) -> dict[str, str]:
        """Return the SQL of each column of the carrier frames, by the column's name.

        Args:
            positions: the positions of the user's columns that the rows have. The SQL of all other
                columns is null.
        """
        names = self.plain_names
        columns = {
            f"c{at}": carrier.filled(names[at]) if at in positions else carrier.nothing
            for at, carrier in enumerate(self.carriers)
        }
        for first in range(0, len(self.carriers), _BITS):
            bits = [
                f"CASE WHEN {names[at]} IS NULL THEN {1 << at - first}L ELSE 0L END"
                for at, carrier in enumerate(self.carriers[first : first + _BITS], first)
                if at in positions and carrier.filler is not None
            ]
            columns[f"nulls{first}"] = " + ".join(bits) or "0L"
        return columns

    @staticmethod
    def carried_names(positions: Sequence[int]) -> list[str]:
        """Return the names of the carried columns of the user's columns at `positions`."""
        return [f"c{position}" for position in positions]

    # ---------------------------------------------------------------- in the worker

    def decode(
        self, frame: pd.DataFrame, positions: Sequence[int] | None = None
    ) -> list[list[Any]]:
        """Decode columns of `frame`; return a list of the user's values for each column.

        Args:
            frame: a carrier frame.
            positions: the positions of the columns to decode; by default all columns.

        Raises:
            UnsupportedColumnError: Python cannot represent a value, for example a date after 9999.
        """
        columns = []
        for index in range(len(self.carriers)) if positions is None else positions:
            try:
                columns.append(self._decoded(frame, index))
            except (OverflowError, ValueError) as error:
                name, kind = self.names[index], self.carriers[index].python_name
                reason = f"a value cannot be a Python {kind} ({error})"
                raise UnsupportedColumnError(name, kind, reason) from error
        return columns

    def _decoded(self, frame: pd.DataFrame, index: int) -> list[Any]:
        carrier = self.carriers[index]
        values: list[Any] = frame[f"c{index}"].tolist()
        if carrier.filler is None:
            if carrier.identity:
                return values
            decode = carrier.decode
            return [None if value is None else decode(value) for value in values]
        if not carrier.identity:
            values = carrier.decode_many(values)
        nulls = self._nulls(frame, index)
        for position in () if nulls is None else np.flatnonzero(nulls):
            values[position] = None
        return values

    @staticmethod
    def _nulls(frame: pd.DataFrame, index: int) -> Any:
        """Return the mask of the nulls in the column `index`; None without nulls."""
        mask = frame[f"nulls{index - index % _BITS}"].to_numpy()
        return (mask & (1 << index % _BITS)) != 0 if mask.any() else None

    def carried_values(self, frame: pd.DataFrame, index: int) -> tuple[Any, Any]:
        """Return the values of a carried column, and the mask of its nulls.

        The mask is None if the column has no nulls, or if its values are objects and thus include
        nulls.

        Args:
            frame: a carrier frame.
            index: the position of the user's column.
        """
        values = frame[f"c{index}"].to_numpy()
        return values, None if values.dtype == object else self._nulls(frame, index)

    def event_times(self, frame: pd.DataFrame, index: int) -> list[int | None]:
        """Return the timestamps of column number `index` in ms, and None for nulls.

        No row is decoded.
        """
        micros, nulls = self.carried_values(frame, index)
        times: list[int | None] = (micros // 1000).tolist()
        for position in () if nulls is None else np.flatnonzero(nulls):
            times[position] = None
        return times

    def rows(self, columns: list[list[Any]]) -> Iterable[Any]:
        """Return the rows that functions see, from the decoded `columns`."""
        make = row_maker(row_type(self.names[: self.width]))
        return map(make, zip(*columns[: self.width], strict=True))

    def batch(self, frame: pd.DataFrame) -> pa.RecordBatch:
        """Decode the columns that functions see to Arrow arrays.

        Args:
            frame: a carrier frame.

        Raises:
            UnsupportedColumnError: Python or Arrow cannot represent a value.
        """
        arrays = [self._array(frame, index) for index in range(self.width)]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names[: self.width]))

    def _array(self, frame: pd.DataFrame, index: int) -> pa.Array:
        carrier, kind = self.carriers[index], self.arrow_types[index]
        values, nulls = self.carried_values(frame, index)
        try:
            if values.dtype == object:
                if not carrier.identity:
                    decode = carrier.decode
                    values = [
                        None if value is None else _arrow_value(decode(value), kind)
                        for value in values
                    ]
                return pa.array(values, kind)
            if pa.types.is_null(kind):
                return pa.nulls(len(values))
            array = pa.array(values, mask=nulls)
            if pa.types.is_date32(kind):
                array = array.cast(pa.int32())
            return array if array.type == kind else array.cast(kind)
        except (OverflowError, ValueError) as error:
            reason = f"a value cannot be in a column of {kind} ({error})"
            raise UnsupportedColumnError(self.names[index], str(kind), reason) from error


def _arrow_value(value: Any, kind: pa.DataType) -> Any:
    """Return `value` in the form that Arrow expects: rows as dicts, and maps as lists of pairs.

    Args:
        value: a decoded value.
        kind: the Arrow type of the value.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            field.name: _arrow_value(part, field.type)
            for field, part in zip(kind, value, strict=True)
        }
    if pa.types.is_map(kind):
        return [
            (_arrow_value(key, kind.key_type), _arrow_value(item, kind.item_type))
            for key, item in value.items()
        ]
    if pa.types.is_list(kind):
        return [_arrow_value(item, kind.value_type) for item in value]
    return value


def nulls_first(value: Any) -> tuple[int, Any]:
    """Return a sort key for `value` that sorts like Spark: nulls come first and NaN last.

    This also holds within structs and arrays. An array comes before a longer array with the same
    beginning.
    """
    if value is None:
        return 0, 0
    if isinstance(value, (tuple, list)):
        return 1, list(map(nulls_first, value))
    return (1, value) if value == value else (2, 0)  # noqa: PLR0124 - NaN is not itself


def sort_keys(columns: Iterable[Sequence[Any]]) -> Iterable[Any]:
    """Return the sort key of each row, by the values of `columns` in this order."""
    return zip(*(map(nulls_first, column) for column in columns), strict=True)


def in_key_order(frame: pd.DataFrame, keys: Sequence[str], group: str) -> pd.DataFrame:
    """Return the rows of `frame` sorted by key group and key. The rows of a key keep their order.

    In a sorted frame each key is selected, read and written only once, and the backend is read and
    written in the order of its storage. With 50,000 rows of 21,500 keys, sorting costs 0.05 µs a
    row for whole numbers and 0.2 µs for strings, and saves more than 1 µs.

    Args:
        frame: a carrier frame.
        keys: the names of the carried columns of the key.
        group: the name of the column of key groups.
    """
    ranks = _ranks(frame[keys[0]])
    for name in keys[1:]:
        more = _ranks(frame[name])
        ranks = _ranks(pd.Series(ranks * (int(more.max(initial=0)) + 1) + more))
    order = _stable_order(ranks)
    groups = frame[group].to_numpy()
    return frame.take(order[_stable_order(groups[order])])


def _ranks(column: pd.Series[Any]) -> np.ndarray[Any, Any]:
    """Return the rank of each value among the distinct values: from 1, and 0 for a null."""
    values = column.to_numpy()
    if values.dtype == object:
        # As bytes, because pandas treats strings as equal that differ only after a zero byte.
        encoded = pa.array(values, pa.binary()).dictionary_encode()
        ranks = pc.rank(encoded.dictionary).to_numpy().astype(np.int64)
        codes: np.ndarray[Any, Any] = encoded.indices.fill_null(len(ranks)).to_numpy()
        return np.append(ranks, 0).take(codes)
    codes, distinct = pd.factorize(values)
    ranks = np.empty(len(distinct) + 1, np.int64)
    ranks[np.argsort(distinct)] = np.arange(1, len(distinct) + 1)
    ranks[-1] = 0
    return ranks[codes]


def _stable_order(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the positions that sort `numbers`. Equal numbers keep their order.

    The numbers are key groups or ranks. Key groups always fit 16 bits. Ranks fit 16 bits if there
    are fewer than 2**16 of them. NumPy sorts 16-bit numbers ten times as fast.
    """
    if len(numbers) < 1 << 16:
        numbers = numbers.astype(np.uint16)
    return np.argsort(numbers, kind="stable")
