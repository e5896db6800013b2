"""Carriers of dates, timestamps, intervals and times.

A carrier converts values so that pandas does not change them, see ``values/carrier.py``. Times
become texts, all other types become whole numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, timezone
from itertools import repeat
from operator import attrgetter, countOf
from types import NoneType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from millpond.types.number_types import fits_int64
from millpond.types.time_types import EPOCH, NAIVE_EPOCH, micros_from_datetime
from pyspark.sql import types as T
from typing_extensions import override

from millpond_spark.values.carrier import Carrier, misfit

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MICROS = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_UNITS = [86_400 * _MICROS, 3_600 * _MICROS, 60 * _MICROS, 1]
"""The least step in microseconds of an interval that ends with a day, hour, minute or second."""


def _in_python(kind: type, numpy_type: str, values: list[Any]) -> list[Any]:
    """Convert whole numbers to dates or timedeltas by NumPy, five times as fast as Python.

    Args:
        kind: the Python type of the results: date or timedelta.
        numpy_type: the name of the NumPy type, which defines the unit of the numbers.
        values: the numbers.

    Raises:
        OverflowError: a number is beyond the range of `kind`.
    """
    made: list[Any] = np.array(values, dtype=numpy_type).tolist()
    if countOf(map(type, made), kind) < len(made):
        raise OverflowError(f"it is out of the range of {kind.__name__}")
    return made


class DateCarrier(Carrier):
    """The carrier of date. The carried column has the days since 1970."""

    carried = T.LongType()
    filler = 0
    python_name = "date"
    plain_type = date
    arrow_type = pa.date32()

    @override
    def encode(self, column: str) -> str:
        return f"CAST(unix_date({column}) AS BIGINT)"

    @override
    def decode(self, value: Any) -> Any:
        return date.fromordinal(value + _EPOCH_ORDINAL)

    @override
    def decode_many(self, values: list[Any]) -> list[Any]:
        return _in_python(date, "M8[D]", values)

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        is_date = pa.types.is_date32(array.type)
        return array.cast(pa.int32()).cast(pa.int64()) if is_date else None

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, date) or isinstance(value, datetime):
            raise misfit(value)
        return value.toordinal() - _EPOCH_ORDINAL

    @override
    def restore(self, column: str) -> str:
        return f"date_from_unix_date(CAST({column} AS INT))"


class _MomentCarrier(Carrier):
    """The base class for carriers of timestamps. The carried column has microseconds since 1970.

    Attributes:
        epoch: the start of 1970, aware or naive like the decoded values.
        plain_zones: the classes of ``tzinfo`` that Arrow converts exactly.
    """

    carried = T.LongType()
    filler = 0
    python_name = "datetime"
    plain_type = datetime
    epoch: datetime
    plain_zones: frozenset[type]

    @override
    def decode(self, value: Any) -> Any:
        return self.epoch + timedelta(microseconds=value)

    @override
    def decode_many(self, values: list[Any]) -> list[Any]:
        since = _in_python(timedelta, "m8[us]", values)
        return list(map(operator.add, repeat(self.epoch), since))

    @override
    def pack_column(self, values: Sequence[Any]) -> pa.Array | None:
        """Pack a column by Arrow; return None if a time zone's class is not in `plain_zones`."""
        # Arrow ignores a time zone whose offset is None.
        try:
            zones = set(map(type, map(attrgetter("tzinfo"), filter(None, values))))
        except AttributeError:
            return None
        return super().pack_column(values) if zones <= self.plain_zones else None

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        if not pa.types.is_timestamp(array.type):
            return None
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())

    @override
    def pack(self, value: Any) -> Any:
        """Return the microseconds since 1970; raise an error for nanoseconds or pandas' NaT."""
        if not isinstance(value, datetime):
            raise misfit(value)
        if getattr(value, "nanosecond", 0):
            raise ValueError("Spark's timestamps keep microseconds, not nanoseconds")
        micros = micros_from_datetime(value)
        if not fits_int64(micros):
            raise misfit(value)
        return micros


class TimestampCarrier(_MomentCarrier):
    """The carrier of timestamp. Functions see aware datetimes in UTC.

    A naive datetime in the output counts as UTC.
    """

    epoch = EPOCH
    plain_zones = frozenset({NoneType, timezone, ZoneInfo})
    arrow_type = pa.timestamp("us", "UTC")

    @override
    def encode(self, column: str) -> str:
        return f"unix_micros({column})"

    @override
    def restore(self, column: str) -> str:
        return f"timestamp_micros({column})"


class TimestampNtzCarrier(_MomentCarrier):
    """The carrier of timestamp_ntz. Functions see naive datetimes.

    The carried column has the microseconds since 1970 as if the time zone were UTC.
    """

    epoch = NAIVE_EPOCH
    plain_zones = frozenset({NoneType})
    arrow_type = pa.timestamp("us")

    @override
    def encode(self, column: str) -> str:
        """Return SQL that uses each field, because the session's time zone must have no effect."""
        parts = [f"{part}({column})" for part in ("year", "month", "day", "hour", "minute")]
        seconds = f"extract(SECOND FROM {column})"
        return f"unix_micros(make_timestamp_ltz({', '.join(parts)}, {seconds}, 'UTC'))"

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        naive = pa.types.is_timestamp(array.type) and array.type.tz is None
        return super().pack_array(array) if naive else None

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise misfit(value)
        return super().pack(value)

    @override
    def restore(self, column: str) -> str:
        return f"timestamp_ntz'1970-01-01 00:00:00' + {_interval(column)}"


class IntervalCarrier(Carrier):
    """The carrier of interval day to second. The carried column has microseconds."""

    carried = T.LongType()
    filler = 0
    python_name = "timedelta"

    def __init__(self, declared: T.DayTimeIntervalType) -> None:
        super().__init__(declared)
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
            raise misfit(value)
        micros = value // _MICROSECOND
        if micros * _MICROSECOND != value or not fits_int64(micros) or micros % self._unit:
            raise ValueError(f"it does not fit {self.declared.simpleString()}")
        return micros

    @override
    def restore(self, column: str) -> str:
        return f"CAST({_interval(column)} AS {self.declared.simpleString()})"


def _interval(micros: str) -> str:
    """Return SQL that turns the column `micros`, in microseconds, into an interval.

    The SQL splits off whole days, because ``make_dt_interval`` takes at most 12 digits of seconds.
    """
    day = f"{86_400 * _MICROS}L"
    days = f"({micros} div {day})"
    rest = f"CAST({micros} - {days} * {day} AS DECIMAL(18,0))"
    seconds = f"CAST({rest} / {_MICROS} AS DECIMAL(18,6))"
    return f"make_dt_interval(CAST({days} AS INT), 0, 0, {seconds})"


class TimeCarrier(Carrier):
    """The carrier of time. The carried column is a text with microseconds."""

    carried = T.StringType()
    python_name = "time"

    def __init__(self, declared: Any) -> None:  # a TimeType; Spark 4.0 has no such class
        super().__init__(declared)
        self._unit = 10 ** (6 - declared.precision)

    @override
    def decode(self, value: Any) -> Any:
        return time.fromisoformat(value)

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, time) or value.tzinfo is not None:
            raise misfit(value)
        if value.microsecond % self._unit:
            raise ValueError(f"it does not fit {self.declared.simpleString()}")
        return value.isoformat()
