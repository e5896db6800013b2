"""Columns of Arrow's, most of lists, as pandas columns that PySpark hands on as they are.

PySpark pads the one row of a subtask's state to as many rows as its output has, and pandas looks
at each of them; Spark then takes each row of the output by itself. So many rows of output travel as
one, whose columns are lists, and the JVM makes rows of them again. With a hundred thousand rows of
two columns a micro-batch's last stage took a tenth to a quarter less time.

PySpark would make each list a Python list and look for NaN in it, which it takes for null. A
pandas extension array is what it leaves alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pandas.api.extensions import ExtensionArray, ExtensionDtype
from typing_extensions import override

_BYTES = 1_300
"""So many bytes go to one list.

PySpark gathers output until it has more rows than ``spark.sql.execution.arrow.maxRecordsPerBatch``,
of which we recommend 50,000: 64 MB.
"""


def list_offsets(columns: Sequence[pa.Array]) -> pa.Array:
    """Where the lists of some columns of equal length, one row at least, begin and end."""
    rows = len(columns[0])
    size = sum(column.nbytes for column in columns)
    step = max(_BYTES * rows // max(size, 1), 1)
    return pa.array([*range(0, rows, step), rows], pa.int32())


def list_column(column: pa.Array, offsets: pa.Array) -> ExtensionArray:
    """A column as a pandas column of lists."""
    kind = pa.list_(pa.field("element", column.type))
    return _Column(pa.ListArray.from_arrays(offsets, column, kind))


def arrow_column(column: pa.Array) -> ExtensionArray:
    """A column as a pandas column of the same values."""
    return _Column(column)


class _ColumnType(ExtensionDtype):
    """What pandas calls the type of such a column."""

    name = "carried"
    type = object
    _metadata = ("of",)

    def __init__(self, of: pa.DataType) -> None:
        self.of = of

    @classmethod
    @override
    def construct_array_type(cls) -> type[_Column]:  # type: ignore[valid-type]
        return _Column


class _Column(ExtensionArray):
    """A column that Arrow holds: what PySpark asks of one before it takes it over."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        self._dtype = _ColumnType(array.type)

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, **_: Any) -> Self:
        return cls(pa.array(scalars, dtype.of))

    @property
    @override
    def dtype(self) -> _ColumnType:
        return self._dtype

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:  # noqa: A002 - Arrow's
        """Of the type that Arrow asks for."""
        return self._array if type is None else self._array.cast(type)

    @override
    def __len__(self) -> int:
        return len(self._array)

    @override
    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, (int, np.integer)):
            return self._array[int(item)].as_py()
        return type(self)(self._array[item] if isinstance(item, slice) else self._array.take(item))

    @override
    def map(self, mapper: object, na_action: object = None) -> Self:
        """As they are: PySpark maps each to a Python list."""
        return self

    @override
    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Self:
        """Rows by their numbers; with -1 for null where that is allowed.

        PySpark pads the output of a task to its states, of which a partition has several where
        subtasks share it.
        """
        numbers = np.asarray(indices, np.int64)
        return type(self)(self._array.take(pa.array(numbers, mask=(numbers < 0) & allow_fill)))

    @override
    def isna(self) -> Any:
        return self._array.is_null().to_numpy(zero_copy_only=False)

    @override
    def copy(self) -> Self:
        return type(self)(self._array)

    @property
    @override
    def nbytes(self) -> int:
        return int(self._array.nbytes)

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[Self]) -> Self:
        return cls(pa.concat_arrays([each._array for each in to_concat]))  # noqa: SLF001 - its own
