"""Carriers: how each Spark type crosses to Python and back without loss.

pandas loses values: a null makes a bigint column float64, null and NaN become one, timestamps
become nanoseconds. So the JVM encodes each column in a form that pandas carries as it is: whole
numbers (microseconds, days, months) and doubles filled where null, with the nulls in a bit
mask beside them; text, bytes and decimals as objects; nested values as JSON. The worker
decodes column-wise, and results go back the same way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Any, ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
)
from typing_extensions import override

from millpond.errors import brief
from millpond.types.scalars import exact_float

__all__ = [
    "BinaryCarrier",
    "BooleanCarrier",
    "Carrier",
    "DecimalCarrier",
    "FloatingCarrier",
    "IntegralCarrier",
    "NullCarrier",
    "TextCarrier",
    "java_double",
    "refuse",
]


class Carrier(ABC):
    """How one type is carried.

    Attributes:
        carried: the Spark type that crosses.
        filler: what stands for null where the carried type needs a value; None where it
            carries null by itself.
        identity: whether the Python value is the carried value, so nothing needs decoding.
    """

    carried: ClassVar[DataType]
    filler: ClassVar[Any] = None
    identity: ClassVar[bool] = False
    python_name: ClassVar[str]

    def encode(self, column: Column) -> Column:
        """In the JVM, from the type to what is carried; null stays null."""
        return column

    def decode(self, value: Any) -> Any:
        """In Python, from a carried value, not null, to the user's value."""
        return value

    @abstractmethod
    def pack(self, value: Any) -> Any:
        """In Python, from a user's value, not None, to what is carried.

        Raises:
            TypeError, ValueError: the value does not fit the type.
        """

    def restore(self, column: Column) -> Column:
        """In the JVM, from what is carried back to the type."""
        return column


def refuse(value: Any) -> TypeError:
    """The error of a value of a wrong type; the caller adds the column."""
    return TypeError(brief(value))


class BooleanCarrier(Carrier):
    """boolean."""

    carried = BooleanType()
    filler = False
    identity = True
    python_name = "bool"

    @override
    def pack(self, value: Any) -> Any:
        if type(value) is not bool and type(value).__name__ not in ("bool", "bool_"):
            raise refuse(value)
        return bool(value)


class IntegralCarrier(Carrier):
    """tinyint to bigint, as bigint."""

    carried = LongType()
    filler = 0
    identity = True
    python_name = "int"

    def __init__(self, declared: DataType, bits: int) -> None:
        self._declared = declared
        self.low, self.high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    @override
    def encode(self, column: Column) -> Column:
        return column.cast("bigint")

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise refuse(value)
        number = value.__index__()
        if not self.low <= number <= self.high:
            raise ValueError(f"{number} is out of range")
        return number

    @override
    def restore(self, column: Column) -> Column:
        return column.cast(self._declared)


class FloatingCarrier(Carrier):
    """float and double, as double; NaN is not null.

    An int must be the same number as a double; that a float column keeps fewer digits is Spark's.
    """

    carried = DoubleType()
    filler = 0.0
    identity = True
    python_name = "float"

    def __init__(self, declared: DataType) -> None:
        self._declared = declared

    @override
    def encode(self, column: Column) -> Column:
        return column.cast("double")

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, float):
            return float(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise refuse(value)
        return exact_float(value.__index__())

    @override
    def restore(self, column: Column) -> Column:
        return column.cast(self._declared)


class TextCarrier(Carrier):
    """string, char, varchar."""

    carried = StringType()
    identity = True
    python_name = "str"

    @override
    def encode(self, column: Column) -> Column:
        return column.cast("string")

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise refuse(value)
        value.encode()
        return str.__str__(value)  # the text itself: an enum's str() may be its name


class BinaryCarrier(Carrier):
    """binary."""

    carried = BinaryType()
    python_name = "bytes"

    @override
    def decode(self, value: Any) -> Any:
        return bytes(value)

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise refuse(value)
        return bytes(value)


class DecimalCarrier(Carrier):
    """decimal, as text: exact at any precision and scale."""

    carried = StringType()
    python_name = "Decimal"

    def __init__(self, declared: DecimalType) -> None:
        self._declared = declared
        self._limit = Decimal(10) ** (declared.precision - declared.scale)

    @override
    def encode(self, column: Column) -> Column:
        return column.cast("string")

    @override
    def decode(self, value: Any) -> Any:
        return Decimal(value)

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
            raise refuse(value)
        number = Decimal(value)
        if not number.is_finite() or abs(number) >= self._limit or not self._exact(number):
            raise ValueError(f"{number} does not fit {self._declared.simpleString()}")
        return str(number)

    def _exact(self, number: Decimal) -> bool:
        """Whether no digit stands beyond the scale; arithmetic would round to 28 digits."""
        _, digits, exponent = number.as_tuple()
        text = "".join(map(str, digits))
        zeros = len(text) - len(text.rstrip("0"))
        return not number or int(exponent) + zeros >= -self._declared.scale

    @override
    def restore(self, column: Column) -> Column:
        return column.cast(self._declared)


class NullCarrier(Carrier):
    """void."""

    carried = BooleanType()
    filler = False
    python_name = "None"

    @override
    def encode(self, column: Column) -> Column:
        return F.lit(None).cast("boolean")

    @override
    def pack(self, value: Any) -> Any:
        raise refuse(value)

    @override
    def restore(self, column: Column) -> Column:
        return F.lit(None)


def java_double(value: float) -> str:
    """A float as the text that Spark casts back to the same double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
