"""Carriers: converters of a Spark type to values that pandas does not change, and back.

Rows travel between Spark and the worker in pandas frames, and pandas changes some values. In a
bigint column with a null it turns all values into floats. It does not distinguish null from NaN,
and it turns timestamps into nanoseconds. Therefore each column is encoded in the JVM as another
column, the carried column, that pandas keeps unchanged:

* Numbers, booleans, dates and timestamps become whole numbers or doubles. A filler value replaces
  null, and a bit mask in a further column marks the nulls.
* Strings, bytes and decimals become objects. Nested values become JSON texts.

The worker decodes the carried columns. The function's output is encoded as Arrow arrays of the same
types. Arrow arrays can have nulls, so output needs no fillers.

In the JVM, SQL encodes and restores columns. With PySpark's Columns instead of SQL, a thousand
columns would take 12 s, because each part of a Column is a call of the JVM. The SQL uses names such
as ``r0`` instead of the user's names of columns.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import countOf
from types import NoneType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from millpond.errors import brief
from millpond.types.foreign_scalars import python_scalar
from millpond.types.number_types import exact_float
from pyspark.sql import types as T
from typing_extensions import override

_FILLERS: dict[type, str] = {bool: "false", int: "0L", float: "0D"}


class Carrier(ABC):
    """The converter of one Spark type to carried columns and back.

    "Encode" and "restore" are done by SQL in the JVM, for input and output. "Decode" and "pack" are
    done by Python in the worker, for input and output.

    Attributes:
        declared: the user's type of the column.
        carried: the Spark type of the carried column.
        filler: the carried value that replaces null; None if the carried column can have nulls.
        identity: whether a decoded value equals the carried value, so that decoding does nothing.
        python_name: the name of the Python type of decoded values, for errors.
        plain_type: the Python type whose values Arrow packs, a whole column at a time; None if each
            value is packed by itself.
        arrow_type: the Arrow type for a column of ``plain_type`` values.
    """

    carried: ClassVar[T.DataType]
    filler: ClassVar[Any] = None
    identity: ClassVar[bool] = False
    python_name: ClassVar[str]
    plain_type: ClassVar[type | None] = None
    arrow_type: ClassVar[pa.DataType | None] = None

    def __init__(self, declared: T.DataType) -> None:
        self.declared = declared

    def encode(self, column: str) -> str:
        """Return SQL that turns `column` into its carried form. Null remains null."""
        return cast(column, self.declared, self.carried)

    def filled(self, column: str) -> str:
        """Return SQL that turns `column` into its carried form, with the filler for null."""
        encoded = self.encode(column)
        return encoded if self.filler is None else f"coalesce({encoded}, {self.nothing})"

    @property
    def nothing(self) -> str:
        """The SQL of a null's value in the carried column: the filler, or NULL without a filler."""
        if self.filler is None:
            return f"CAST(NULL AS {self.carried.simpleString()})"
        return _FILLERS[type(self.filler)]

    def decode(self, value: Any) -> Any:
        """Return the user's value of the carried `value`, which is not null."""
        return value

    def decode_many(self, values: list[Any]) -> list[Any]:
        """Return the user's values of the carried `values`, none of which is null."""
        return list(map(self.decode, values))

    def pack_column(self, values: Sequence[Any]) -> pa.Array | None:
        """Return the carried form of a column of the user's values and None, packed by Arrow.

        Arrow takes about 40 ns per value. Return None if Arrow cannot pack the column or might
        change a value. The caller then calls ``pack`` for each value.
        """
        if self.plain_type is None:
            return None
        plain = countOf(map(type, values), self.plain_type)
        if plain < len(values) and plain + countOf(map(type, values), NoneType) < len(values):
            return None
        try:
            return self.pack_array(pa.array(values, self.arrow_type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None  # A value does not fit. ``pack`` will find it.

    def pack_array(self, array: pa.Array) -> pa.Array | None:
        """Return the carried form of `array`, an Arrow array of the user's values.

        Return None if the array has another type. The caller then calls ``pack`` for each value.

        Raises:
            pyarrow.ArrowException: a value does not fit the type.
        """
        return array if array.type == self.arrow_type else None

    @abstractmethod
    def pack(self, value: Any) -> Any:
        """Return the carried form of `value`, which the user's function has put out.

        Raises:
            TypeError, ValueError, OverflowError: `value` is None or does not fit the type.
        """

    def restore(self, column: str) -> str:
        """Return SQL that turns the carried `column` into a column of the declared type."""
        return cast(column, self.carried, self.declared)


def packed(pack: Callable[[Any], Any], value: Any, *, nullable: bool) -> Any:
    """Return the carried form of `value`, which may also be None or a NumPy or pandas scalar.

    Args:
        pack: the ``pack`` method of the carrier.
        value: a value that the user's function has put out.
        nullable: whether None is allowed.

    Raises:
        TypeError, ValueError, OverflowError: `value` does not fit the type.
    """
    if value is None and nullable:
        return None
    try:
        return pack(value)
    except (TypeError, ValueError, OverflowError):
        plain = python_scalar(value)
        if plain is value:
            raise
    return packed(pack, plain, nullable=nullable)


def misfit(value: Any) -> TypeError:
    """Return the error for a `value` of a wrong type. Callers add the name of the column."""
    return TypeError("it is declared to have no nulls" if value is None else brief(value))


def integer(value: Any) -> int:
    """Return `value` as an int; raise TypeError for a bool or a value that is no whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise misfit(value)
    return int(value.__index__())


def cast(column: str, given: T.DataType, wanted: T.DataType) -> str:
    """Return SQL that casts `column` from the type `given` to the type `wanted`."""
    return column if given == wanted else f"CAST({column} AS {wanted.simpleString()})"


class TextCarrier(Carrier):
    """The carrier of string."""

    carried = T.StringType()
    identity = True
    python_name = "str"
    plain_type = str
    arrow_type = pa.string()

    @override
    def encode(self, column: str) -> str:
        """Return SQL that fails if a string has bytes that are not UTF-8."""
        # JSON would replace such bytes.
        return f"validate_utf8({cast(column, self.declared, self.carried)})"

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        return array.cast(pa.string()) if is_text else None

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise misfit(value)
        value.encode()
        return str.__str__(value)  # str() of an enum may return its name instead of its value


class BinaryCarrier(Carrier):
    """The carrier of binary."""

    carried = T.BinaryType()
    python_name = "bytes"
    plain_type = bytes
    arrow_type = pa.binary()

    @override
    def decode(self, value: Any) -> Any:
        return bytes(value)

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise misfit(value)
        return bytes(value)


class NullCarrier(Carrier):
    """The carrier of void."""

    carried = T.BooleanType()
    filler = False
    python_name = "None"

    @override
    def encode(self, column: str) -> str:
        return "CAST(NULL AS BOOLEAN)"

    @override
    def pack(self, value: Any) -> Any:
        raise misfit(value)

    @override
    def restore(self, column: str) -> str:
        return "NULL"


_INTEGER_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.LongType: 64}


class BooleanCarrier(Carrier):
    """The carrier of boolean."""

    carried = T.BooleanType()
    filler = False
    identity = True
    python_name = "bool"
    plain_type = bool
    arrow_type = pa.bool_()

    @override
    def pack(self, value: Any) -> Any:
        if type(value) is not bool and type(value).__name__ not in ("bool", "bool_"):
            raise misfit(value)
        return bool(value)


class IntegralCarrier(Carrier):
    """The carrier of tinyint, smallint, int and bigint. The carried column is a bigint."""

    carried = T.LongType()
    filler = 0
    identity = True
    python_name = "int"
    plain_type = int
    arrow_type = pa.int64()

    def __init__(self, declared: T.DataType) -> None:
        super().__init__(declared)
        most = 1 << _INTEGER_BITS.get(type(declared), 32) - 1
        self._low, self._high = -most, most - 1

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        if not pa.types.is_integer(array.type):
            return None
        numbers = array.cast(pa.int64())
        if self.declared == self.carried:
            return numbers
        bounds = pc.min_max(numbers).as_py()
        least, most = bounds["min"], bounds["max"]
        return numbers if least is None or self._low <= least <= most <= self._high else None

    @override
    def pack(self, value: Any) -> Any:
        number = value if type(value) is int else integer(value)
        if not self._low <= number <= self._high:
            raise ValueError(f"out of range of {self.declared.simpleString()}")
        return number


class DoubleCarrier(Carrier):
    """The carrier of double. Output may be an int if a double can hold it exactly."""

    carried = T.DoubleType()
    filler = 0.0
    identity = True
    python_name = "float"
    plain_type = float
    arrow_type = pa.float64()

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        numeric = pa.types.is_floating(array.type) or pa.types.is_integer(array.type)
        return array.cast(pa.float64()) if numeric else None

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, float):
            return float(value)
        return exact_float(integer(value))


class FloatCarrier(DoubleCarrier):
    """The carrier of float. The carried column is a double.

    An output value is rounded to the nearest float. It is refused if that would be infinity.
    """

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        doubles = super().pack_array(array)
        if doubles is None:
            return None
        exact = doubles.fill_null(0.0).to_numpy()
        with np.errstate(over="ignore"):
            narrow = exact.astype(np.float32)
        return doubles if (np.isinf(narrow) == np.isinf(exact)).all() else None

    @override
    def pack(self, value: Any) -> Any:
        """Return the number nearest to `value` that a column of type float can hold."""
        try:
            return struct.unpack("<f", struct.pack("<f", super().pack(value)))[0]
        except OverflowError:
            raise ValueError("out of range of float; declare double") from None


class DecimalCarrier(Carrier):
    """The carrier of decimal. The carried column is a string, exact at any precision and scale."""

    carried = T.StringType()
    python_name = "Decimal"

    def __init__(self, declared: T.DecimalType) -> None:
        super().__init__(declared)
        self._unit = Decimal((0, (1,), -declared.scale))
        self._exactly = Context(prec=declared.precision, traps=[Inexact, InvalidOperation])

    @override
    def decode(self, value: Any) -> Any:
        return Decimal(value)

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
            raise misfit(value)
        try:
            made = Decimal(value).quantize(self._unit, context=self._exactly)
        except (Inexact, InvalidOperation):
            made = Decimal("NaN")  # refused in the next line, like infinity and NaN
        if not made.is_finite():
            raise ValueError(f"it does not fit {self.declared.simpleString()}")
        return str(made)
