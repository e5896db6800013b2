"""Carriers: the lossless crossing of each Spark type to Python and back.

pandas loses values: a null makes a bigint column float64, null and NaN become one, timestamps
become nanoseconds. So the JVM encodes each column in a form that pandas keeps unchanged: whole
numbers (microseconds, days, months) and doubles with a filler for null and a bit mask of the nulls;
text, bytes and decimals as objects; nested values as JSON. The worker decodes column by column.
Results go back in the same form, except that Arrow arrays hold their nulls themselves.

The JVM's part is written as SQL, because a PySpark Column costs a call of the JVM for each of its
parts: 12 s for a thousand columns. The SQL refers to columns by plain names, never by the user's.


Carriers of booleans and numbers.
"""

from __future__ import annotations

import math
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
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    VarcharType,
)
from typing_extensions import override

_FILLERS: dict[type, str] = {bool: "false", int: "0L", float: "0D"}


class Carrier(ABC):
    """The conversion of one Spark type to its carried form and back.

    Attributes:
        carried: the Spark type that crosses.
        filler: the carried value for null if the carried type needs a value; None if it carries
            null itself.
        identity: whether the Python value is the carried value, so that nothing is decoded.
        python_name: the name of the Python type, for errors.
        plain_type: the Python type whose instances are packed by Arrow, a column at a time; None
            if each value is packed by itself.
        arrow_type: the Arrow type of columns of ``plain_type``.
    """

    carried: ClassVar[DataType]
    filler: ClassVar[Any] = None
    identity: ClassVar[bool] = False
    python_name: ClassVar[str]
    plain_type: ClassVar[type | None] = None
    arrow_type: ClassVar[pa.DataType | None] = None

    def encode(self, column: str) -> str:
        """Return SQL that turns a column of the type into its carried form; null remains null."""
        return column

    def filled(self, column: str) -> str:
        """Return the SQL of ``encode`` with the filler for null."""
        encoded = self.encode(column)
        return encoded if self.filler is None else f"coalesce({encoded}, {self.nothing})"

    @property
    def nothing(self) -> str:
        """The carried form of null, in SQL."""
        if self.filler is None:
            return f"CAST(NULL AS {self.carried.simpleString()})"
        return _FILLERS[type(self.filler)]

    def decode(self, value: Any) -> Any:
        """Turn a carried value, not null, into the user's value."""
        return value

    def decode_many(self, values: list[Any]) -> list[Any]:
        """Decode carried values, none null. Override it if there is a faster way."""
        return list(map(self.decode, values))

    def pack_column(self, values: Sequence[Any]) -> pa.Array | None:
        """Pack values and nulls by Arrow, some 40 ns a value; None if one needs ``pack``."""
        if self.plain_type is None:
            return None
        plain = countOf(map(type, values), self.plain_type)
        if plain < len(values) and plain + countOf(map(type, values), NoneType) < len(values):
            return None
        try:
            return self.pack_array(pa.array(values, self.arrow_type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None  # one value does not fit, and ``pack`` says which

    def pack_array(self, array: pa.Array) -> pa.Array | None:
        """Pack an Arrow array; None if its values must be packed one by one.

        Raises:
            pyarrow.ArrowException: a value does not fit the type.
        """
        return None

    @abstractmethod
    def pack(self, value: Any) -> Any:
        """Turn a user's value into its carried form.

        Raises:
            TypeError, ValueError, OverflowError: the value does not fit the type. None never
                fits: the caller handles nulls.
        """

    def restore(self, column: str) -> str:
        """Return SQL that turns a carried column back into the type."""
        return column


def packed(pack: Callable[[Any], Any], value: Any, *, nullable: bool) -> Any:
    """Pack a value, or the Python scalar of a NumPy or pandas scalar.

    Raises:
        TypeError, ValueError, OverflowError: the value does not fit the type.
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
    """Return the error for a value of a wrong type; the caller adds the column."""
    return TypeError("it is declared to have no nulls" if value is None else brief(value))


def cast(column: str, given: DataType, wanted: DataType) -> str:
    """Return SQL that casts a column, or the column if both types are equal."""
    return column if given == wanted else f"CAST({column} AS {wanted.simpleString()})"


class TextCarrier(Carrier):
    """The carrier of string, char and varchar; a char is not padded with spaces."""

    carried = StringType()
    identity = True
    python_name = "str"
    plain_type = str
    arrow_type = pa.string()

    def __init__(self, declared: DataType) -> None:
        self._declared = declared
        bounded = isinstance(declared, (CharType, VarcharType))
        self._length: int | None = declared.length if bounded else None  # type: ignore[attr-defined]

    @override
    def encode(self, column: str) -> str:
        """Fail for bytes that are not UTF-8; JSON would replace them."""
        return f"validate_utf8({cast(column, self._declared, self.carried)})"

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            return None
        texts = array.cast(pa.string())
        longest = None if self._length is None else pc.max(pc.utf8_length(texts)).as_py()
        return texts if longest is None or longest <= self._length else None

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise misfit(value)
        value.encode()
        if self._length is not None and len(value) > self._length:
            raise ValueError(f"{len(value)} characters do not fit {self._declared.simpleString()}")
        return str.__str__(value)  # an enum's str() may be its name instead of its value

    @override
    def restore(self, column: str) -> str:
        """Cast to the declared collation; the output's schema gives the length."""
        return column if self._length is not None else cast(column, self.carried, self._declared)


class BinaryCarrier(Carrier):
    """The carrier of binary."""

    carried = BinaryType()
    python_name = "bytes"
    plain_type = bytes
    arrow_type = pa.binary()

    @override
    def decode(self, value: Any) -> Any:
        return bytes(value)

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        return array if pa.types.is_binary(array.type) else None

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise misfit(value)
        return bytes(value)


class NullCarrier(Carrier):
    """The carrier of void."""

    carried = BooleanType()
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


_FLOAT = struct.Struct("<f")


class BooleanCarrier(Carrier):
    """The carrier of boolean."""

    carried = BooleanType()
    filler = False
    identity = True
    python_name = "bool"
    plain_type = bool
    arrow_type = pa.bool_()

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        return array if pa.types.is_boolean(array.type) else None

    @override
    def pack(self, value: Any) -> Any:
        if type(value) is not bool and type(value).__name__ not in ("bool", "bool_"):
            raise misfit(value)
        return bool(value)


class IntegralCarrier(Carrier):
    """The carrier of tinyint, smallint, int and bigint, which all cross as bigint."""

    carried = LongType()
    filler = 0
    identity = True
    python_name = "int"
    plain_type = int
    arrow_type = pa.int64()

    def __init__(self, declared: DataType, bits: int) -> None:
        self._declared = declared
        self._low, self._high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    @override
    def encode(self, column: str) -> str:
        return cast(column, self._declared, self.carried)

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        if not pa.types.is_integer(array.type):
            return None
        numbers = array.cast(pa.int64())
        if self._declared == self.carried:
            return numbers
        bounds = pc.min_max(numbers).as_py()
        least, most = bounds["min"], bounds["max"]
        return numbers if least is None or self._low <= least <= most <= self._high else None

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise misfit(value)
        number = value.__index__()
        if not self._low <= number <= self._high:
            raise ValueError(f"out of range of {self._declared.simpleString()}")
        return number

    @override
    def restore(self, column: str) -> str:
        return cast(column, self.carried, self._declared)


class DoubleCarrier(Carrier):
    """The carrier of double. NaN is not null. An int must be exact as a double."""

    carried = DoubleType()
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
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise misfit(value)
        return exact_float(value.__index__())


class FloatCarrier(DoubleCarrier):
    """The carrier of float, which crosses as double: values are rounded, but not to infinity."""

    @override
    def encode(self, column: str) -> str:
        return f"CAST({column} AS DOUBLE)"

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
        """Return the nearest number that a float column has."""
        try:
            return _FLOAT.unpack(_FLOAT.pack(super().pack(value)))[0]
        except OverflowError:
            raise ValueError("out of range of float; declare double") from None

    @override
    def restore(self, column: str) -> str:
        return f"CAST({column} AS FLOAT)"


class DecimalCarrier(Carrier):
    """The carrier of decimal, which crosses as text: exact at any precision and scale."""

    carried = StringType()
    python_name = "Decimal"

    def __init__(self, declared: DecimalType) -> None:
        self._declared = declared
        self._unit = Decimal((0, (1,), -declared.scale))
        self._exactly = Context(prec=declared.precision, traps=[Inexact, InvalidOperation])

    @override
    def encode(self, column: str) -> str:
        return f"CAST({column} AS STRING)"

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
            made = Decimal("NaN")  # refused below, as infinities and NaN are
        if not made.is_finite():
            raise ValueError(f"it does not fit {self._declared.simpleString()}")
        return str(made)

    @override
    def restore(self, column: str) -> str:
        return f"CAST({column} AS {self._declared.simpleString()})"


def java_double(value: float) -> str:
    """Return the text that Spark casts back to the same double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
