"""Which carrier a type without parts has."""

from __future__ import annotations

from collections.abc import Callable

from millpond.errors import UnsupportedColumnError
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

from millpond_spark.values.carrier import BinaryCarrier, Carrier, NullCarrier, TextCarrier
from millpond_spark.values.numeric import (
    BooleanCarrier,
    DecimalCarrier,
    DoubleCarrier,
    FloatCarrier,
    IntegralCarrier,
)
from millpond_spark.values.temporal import (
    DateCarrier,
    IntervalCarrier,
    MonthsCarrier,
    TimeCarrier,
    TimestampCarrier,
    TimestampNtzCarrier,
)

_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_PLAIN: dict[type[DataType], Callable[[], Carrier]] = {
    BooleanType: BooleanCarrier,
    FloatType: FloatCarrier,
    DoubleType: DoubleCarrier,
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
    if isinstance(declared, (StringType, CharType, VarcharType)):
        return TextCarrier(declared)
    if isinstance(declared, DecimalType):
        return DecimalCarrier(declared)
    if isinstance(declared, DayTimeIntervalType):
        return IntervalCarrier(declared)
    if isinstance(declared, YearMonthIntervalType):
        return MonthsCarrier(declared)
    if kind.__name__ == "TimeType":  # by name: Spark has it from 4.1 on
        return TimeCarrier(declared)
    raise UnsupportedColumnError(name, declared.simpleString())
