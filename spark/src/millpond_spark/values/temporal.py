"""Carriers of dates, timestamps, times and intervals: whole numbers, or text for times."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from itertools import repeat
from operator import attrgetter, countOf
from typing import Any

import numpy as np
from millpond.types.number_types import fits_int64
from millpond.types.time_types import EPOCH, NAIVE_EPOCH, micros_from_datetime
from pyspark.sql.types import (
    DayTimeIntervalType,
    LongType,
    StringType,
    YearMonthIntervalType,
)
from typing_extensions import override

from millpond_spark.values.carrier import Carrier, all_are, refuse
from millpond_spark.values.numeric import IntegralCarrier

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_NTZ_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"
_MICROS = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_ZONE_OF = attrgetter("tzinfo")
_UNITS = [86_400 * _MICROS, 3_600 * _MICROS, 60 * _MICROS, 1]
"""How many microseconds the fields of an interval have: day, hour, minute, second."""


def _in_python(kind: type, numpy_type: str, values: list[Any]) -> list[Any] | None:
    """Whole numbers as objects of a type, by a loop in C: a moment in a fifth of what a call takes.

    None where one is beyond what the type has.
    """
    made: list[Any] = np.array(values, dtype=numpy_type).tolist()
    return made if all_are(kind, made) else None


def _micros_of(value: datetime) -> int:
    """Microseconds since 1970; refuses nanoseconds, and NaT, which pandas counts as a datetime."""
    if getattr(value, "nanosecond", 0):
        raise ValueError("Spark's timestamps keep microseconds, not nanoseconds")
    micros = micros_from_datetime(value)
    if not fits_int64(micros):
        raise refuse(value)
    return micros


class DateCarrier(Carrier):
    """date, as days since 1970."""

    carried = LongType()
    filler = 0
    python_name = "date"

    @override
    def encode(self, column: str) -> str:
        return f"CAST(unix_date({column}) AS BIGINT)"

    @override
    def decode(self, value: Any) -> Any:
        return date.fromordinal(value + _EPOCH_ORDINAL)

    @override
    def decode_many(self, values: list[Any]) -> list[Any]:
        made = _in_python(date, "M8[D]", values)
        return super().decode_many(values) if made is None else made

    @override
    def at_once(self, values: Sequence[Any]) -> Any:
        if not all_are(date, values):
            return None
        return np.fromiter(map(date.toordinal, values), np.int64, len(values)) - _EPOCH_ORDINAL

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, date) or isinstance(value, datetime):
            raise refuse(value)
        return value.toordinal() - _EPOCH_ORDINAL

    @override
    def restore(self, column: str) -> str:
        return f"date_from_unix_date(CAST({column} AS INT))"


class TimestampCarrier(Carrier):
    """timestamp, as microseconds; an aware datetime in UTC."""

    carried = LongType()
    filler = 0
    python_name = "datetime"
    epoch = EPOCH

    @override
    def encode(self, column: str) -> str:
        return f"unix_micros({column})"

    @override
    def decode(self, value: Any) -> Any:
        return self.epoch + timedelta(microseconds=value)

    @override
    def decode_many(self, values: list[Any]) -> list[Any]:
        since = _in_python(timedelta, "m8[us]", values)
        if since is None:
            return super().decode_many(values)
        return list(map(operator.add, repeat(self.epoch), since))

    @override
    def at_once(self, values: Sequence[Any]) -> Any:
        """By loops in C: half of what a call each takes."""
        if not all_are(datetime, values):
            return None
        epoch = self._epoch_of(values[0])
        # A value may have a zone that does not know, from which the naive epoch can be taken, too.
        if epoch is NAIVE_EPOCH and countOf(map(_ZONE_OF, values), None) != len(values):
            return None
        try:
            since = list(map(operator.sub, values, repeat(epoch)))
        except (TypeError, ValueError, OverflowError):  # some know their zone, and some do not
            return None
        return list(map(operator.floordiv, since, repeat(_MICROSECOND)))

    def _epoch_of(self, value: datetime) -> datetime:
        """What is subtracted from a value."""
        return NAIVE_EPOCH if value.tzinfo is None else EPOCH

    @override
    def pack(self, value: Any) -> Any:
        """A naive datetime means UTC."""
        if not isinstance(value, datetime):
            raise refuse(value)
        return _micros_of(value)

    @override
    def restore(self, column: str) -> str:
        return f"timestamp_micros({column})"


class TimestampNtzCarrier(TimestampCarrier):
    """timestamp_ntz, as microseconds as if in UTC; a naive datetime."""

    epoch = NAIVE_EPOCH

    @override
    def _epoch_of(self, value: datetime) -> datetime:
        return NAIVE_EPOCH

    @override
    def encode(self, column: str) -> str:
        """No session time zone takes part."""
        parts = [f"{part}({column})" for part in ("year", "month", "day", "hour", "minute")]
        seconds = f"extract(SECOND FROM {column})"
        return f"unix_micros(make_timestamp_ltz({', '.join(parts)}, {seconds}, 'UTC'))"

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise refuse(value)
        return _micros_of(value)

    @override
    def restore(self, column: str) -> str:
        return f"{_NTZ_EPOCH} + {_interval(column)}"


class IntervalCarrier(Carrier):
    """interval day to second, as microseconds; a timedelta."""

    carried = LongType()
    filler = 0
    python_name = "timedelta"

    def __init__(self, declared: DayTimeIntervalType) -> None:
        self._declared = declared
        self._unit = _UNITS[declared.endField]

    @override
    def encode(self, column: str) -> str:
        full = f"CAST({column} AS INTERVAL DAY TO SECOND)"
        days, hours, minutes, seconds = (
            f"extract({part} FROM {full})" for part in ("DAY", "HOUR", "MINUTE", "SECOND")
        )
        whole = f"((CAST({days} AS BIGINT) * 24 + {hours}) * 60 + {minutes}) * 60"
        return f"{whole} * {_MICROS} + CAST({seconds} * {_MICROS} AS BIGINT)"

    @override
    def decode(self, value: Any) -> Any:
        return timedelta(microseconds=value)

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, timedelta):
            raise refuse(value)
        micros = value // _MICROSECOND
        if micros * _MICROSECOND != value or not fits_int64(micros) or micros % self._unit:
            raise ValueError(f"it does not fit {self._declared.simpleString()}")
        return micros

    @override
    def restore(self, column: str) -> str:
        return f"CAST({_interval(column)} AS {self._declared.simpleString()})"


def _interval(micros: str) -> str:
    """An interval of so many microseconds.

    Days apart from seconds: ``make_dt_interval`` takes no more than 12 digits of seconds.
    """
    day = f"{86_400 * _MICROS}L"
    days = f"({micros} div {day})"
    rest = f"CAST({micros} - {days} * {day} AS DECIMAL(18,0))"
    seconds = f"CAST({rest} / {_MICROS} AS DECIMAL(18,6))"
    return f"make_dt_interval(CAST({days} AS INT), 0, 0, {seconds})"


class MonthsCarrier(Carrier):
    """interval year to month, as months; an int, for Python has no such type."""

    carried = LongType()
    filler = 0
    identity = True
    python_name = "int"

    def __init__(self, declared: YearMonthIntervalType) -> None:
        self._declared = declared
        self._unit = 1 if declared.endField else 12
        self._whole = IntegralCarrier(declared, 32)

    @override
    def encode(self, column: str) -> str:
        full = f"CAST({column} AS INTERVAL YEAR TO MONTH)"
        years, months = (f"extract({part} FROM {full})" for part in ("YEAR", "MONTH"))
        return f"CAST({years} AS BIGINT) * 12 + {months}"

    @override
    def pack(self, value: Any) -> Any:
        months = self._whole.pack(value)
        if months % self._unit:
            raise ValueError(f"{months} months do not fit {self._declared.simpleString()}")
        return months

    @override
    def restore(self, column: str) -> str:
        months = f"make_ym_interval(0, CAST({column} AS INT))"
        return f"CAST({months} AS {self._declared.simpleString()})"


class TimeCarrier(Carrier):
    """time, as text with microseconds."""

    carried = StringType()
    python_name = "time"

    def __init__(self, declared: Any) -> None:  # Spark's TimeType, which 4.0 has not
        self._declared = declared
        self._unit = 10 ** (6 - declared.precision)

    @override
    def encode(self, column: str) -> str:
        return f"CAST({column} AS STRING)"

    @override
    def decode(self, value: Any) -> Any:
        return time.fromisoformat(value)

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, time) or value.tzinfo is not None:
            raise refuse(value)
        if value.microsecond % self._unit:
            raise ValueError(f"it does not fit {self._declared.simpleString()}")
        return value.isoformat()

    @override
    def restore(self, column: str) -> str:
        return f"CAST({column} AS {self._declared.simpleString()})"
