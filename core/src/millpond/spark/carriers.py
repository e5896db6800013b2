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
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    YearMonthIntervalType,
)

from millpond.errors import UnsupportedColumnError, brief
from millpond.types.scalars import EPOCH, NAIVE_EPOCH, micros_from_datetime

__all__ = ["Carrier", "scalar_carrier"]

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_NTZ_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"
_MICROS = 1_000_000
_MICROSECOND = timedelta(microseconds=1)


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

    def pack(self, value: Any) -> Any:
        """See the base class."""
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

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return column.cast("bigint")

    def pack(self, value: Any) -> Any:
        """See the base class."""
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise refuse(value)
        number = value.__index__()
        if not self.low <= number <= self.high:
            raise ValueError(f"{number} is out of range")
        return number

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return column.cast(self._declared)


class FloatingCarrier(Carrier):
    """float and double, as double; NaN is not null."""

    carried = DoubleType()
    filler = 0.0
    identity = True
    python_name = "float"

    def __init__(self, declared: DataType) -> None:
        self._declared = declared

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return column.cast("double")

    def pack(self, value: Any) -> Any:
        """See the base class."""
        if isinstance(value, bool) or not (isinstance(value, float) or hasattr(value, "__index__")):
            raise refuse(value)
        return float(value)

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return column.cast(self._declared)


class TextCarrier(Carrier):
    """string, char, varchar."""

    carried = StringType()
    identity = True
    python_name = "str"

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return column.cast("string")

    def pack(self, value: Any) -> Any:
        """See the base class."""
        if not isinstance(value, str):
            raise refuse(value)
        value.encode()
        return str(value)


class BinaryCarrier(Carrier):
    """binary."""

    carried = BinaryType()
    python_name = "bytes"

    def decode(self, value: Any) -> Any:
        """See the base class."""
        return bytes(value)

    def pack(self, value: Any) -> Any:
        """See the base class."""
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

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return column.cast("string")

    def decode(self, value: Any) -> Any:
        """See the base class."""
        return Decimal(value)

    def pack(self, value: Any) -> Any:
        """See the base class."""
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

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return column.cast(self._declared)


class DateCarrier(Carrier):
    """date, as days since 1970."""

    carried = LongType()
    filler = 0
    python_name = "date"

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return F.unix_date(column).cast("bigint")

    def decode(self, value: Any) -> Any:
        """See the base class."""
        return date.fromordinal(value + _EPOCH_ORDINAL)

    def pack(self, value: Any) -> Any:
        """See the base class."""
        if not isinstance(value, date) or isinstance(value, datetime):
            raise refuse(value)
        return value.toordinal() - _EPOCH_ORDINAL

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return F.date_from_unix_date(column.cast("int"))


class TimestampCarrier(Carrier):
    """timestamp, as microseconds; an aware datetime in UTC."""

    carried = LongType()
    filler = 0
    python_name = "datetime"

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return F.unix_micros(column)

    def decode(self, value: Any) -> Any:
        """See the base class."""
        return EPOCH + timedelta(microseconds=value)

    def pack(self, value: Any) -> Any:
        """See the base class; a naive datetime means UTC."""
        if not isinstance(value, datetime):
            raise refuse(value)
        return micros_from_datetime(value)

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return F.timestamp_micros(column)


class TimestampNtzCarrier(TimestampCarrier):
    """timestamp_ntz, as microseconds as if in UTC; a naive datetime."""

    def encode(self, column: Column) -> Column:
        """See the base class; no session time zone takes part."""
        parts = [F.year, F.month, F.day, F.hour, F.minute]
        seconds = F.extract(F.lit("SECOND"), column)
        year, month, day, hour, minute = (part(column) for part in parts)
        return F.unix_micros(
            F.make_timestamp_ltz(year, month, day, hour, minute, seconds, F.lit("UTC"))
        )

    def decode(self, value: Any) -> Any:
        """See the base class."""
        return NAIVE_EPOCH + timedelta(microseconds=value)

    def pack(self, value: Any) -> Any:
        """See the base class."""
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise refuse(value)
        return micros_from_datetime(value)

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return F.expr(_NTZ_EPOCH) + _interval(column)


class IntervalCarrier(Carrier):
    """interval day to second, as microseconds; a timedelta."""

    carried = LongType()
    filler = 0
    python_name = "timedelta"

    def __init__(self, declared: DayTimeIntervalType) -> None:
        self._declared = declared

    def encode(self, column: Column) -> Column:
        """See the base class."""
        full = column.cast(DayTimeIntervalType())
        days, hours, minutes, seconds = (
            F.extract(F.lit(part), full) for part in ("DAY", "HOUR", "MINUTE", "SECOND")
        )
        whole = ((days.cast("bigint") * 24 + hours) * 60 + minutes) * 60
        return whole * _MICROS + (seconds * _MICROS).cast("bigint")

    def decode(self, value: Any) -> Any:
        """See the base class."""
        return timedelta(microseconds=value)

    def pack(self, value: Any) -> Any:
        """See the base class."""
        if not isinstance(value, timedelta):
            raise refuse(value)
        return value // _MICROSECOND

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return _interval(column).cast(self._declared)


def _interval(micros: Column) -> Column:
    """An interval of so many microseconds.

    Days apart from seconds: ``make_dt_interval`` takes no more than 12 digits of seconds.
    """
    day = F.lit(86_400 * _MICROS).cast("bigint")
    days = F.call_function("div", micros, day)
    seconds = ((micros - days * day).cast("decimal(18,0)") / _MICROS).cast("decimal(18,6)")
    return F.make_dt_interval(days.cast("int"), F.lit(0), F.lit(0), seconds)


class MonthsCarrier(Carrier):
    """interval year to month, as months; an int, for Python has no such type."""

    carried = LongType()
    filler = 0
    identity = True
    python_name = "int"
    low, high = -(1 << 31), (1 << 31) - 1

    def __init__(self, declared: YearMonthIntervalType) -> None:
        self._declared = declared

    def encode(self, column: Column) -> Column:
        """See the base class."""
        full = column.cast(YearMonthIntervalType())
        years, months = (F.extract(F.lit(part), full) for part in ("YEAR", "MONTH"))
        return years.cast("bigint") * 12 + months

    def pack(self, value: Any) -> Any:
        """See the base class."""
        return IntegralCarrier(IntegerType(), 32).pack(value)

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return F.make_ym_interval(F.lit(0), column.cast("int")).cast(self._declared)


class TimeCarrier(Carrier):
    """time, as text with microseconds."""

    carried = StringType()
    python_name = "time"

    def __init__(self, declared: DataType) -> None:
        self._declared = declared

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return column.cast("string")

    def decode(self, value: Any) -> Any:
        """See the base class."""
        return time.fromisoformat(value)

    def pack(self, value: Any) -> Any:
        """See the base class."""
        if not isinstance(value, time) or value.tzinfo is not None:
            raise refuse(value)
        return value.isoformat()

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return column.cast(self._declared)


class NullCarrier(Carrier):
    """void."""

    carried = BooleanType()
    filler = False
    python_name = "None"

    def encode(self, column: Column) -> Column:
        """See the base class."""
        return F.lit(None).cast("boolean")

    def pack(self, value: Any) -> Any:
        """See the base class."""
        raise refuse(value)

    def restore(self, column: Column) -> Column:
        """See the base class."""
        return F.lit(None)


_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_PLAIN: dict[type[DataType], Callable[[], Carrier]] = {
    BooleanType: BooleanCarrier,
    StringType: TextCarrier,
    CharType: TextCarrier,
    VarcharType: TextCarrier,
    BinaryType: BinaryCarrier,
    DateType: DateCarrier,
    TimestampType: TimestampCarrier,
    TimestampNTZType: TimestampNtzCarrier,
    NullType: NullCarrier,
}


def scalar_carrier(name: str, declared: DataType) -> Carrier:  # noqa: PLR0911 - a table
    """The carrier of a type without parts.

    Raises:
        UnsupportedColumnError: it cannot be carried without loss.
    """
    kind = type(declared)
    if kind in _BITS:
        return IntegralCarrier(declared, _BITS[kind])
    if kind in _PLAIN:
        return _PLAIN[kind]()
    if isinstance(declared, (FloatType, DoubleType)):
        return FloatingCarrier(declared)
    if isinstance(declared, DecimalType):
        return DecimalCarrier(declared)
    if isinstance(declared, DayTimeIntervalType):
        return IntervalCarrier(declared)
    if isinstance(declared, YearMonthIntervalType):
        return MonthsCarrier(declared)
    if kind.__name__ == "TimeType":  # by name: Spark has it from 4.1 on
        return TimeCarrier(declared)
    raise UnsupportedColumnError(name, declared.simpleString())


def java_double(value: float) -> str:
    """A float as the text that Spark casts back to the same double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
