"""Times: datetime, date, timedelta and time, with all their conversions."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar

import pyarrow as pa
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.number_types import (
    fits_int64,
    int_from_text,
    int_to_text,
    pack_int,
    require_int64,
    unpack_int,
)
from millpond.types.scalar import (
    ColumnForm,
    ScalarKeyCodec,
    ScalarSerializer,
    UnfitError,
    exactly,
    int_from_bytes,
    int_to_bytes,
    type_error,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the epoch of naive values is naive
_EPOCH_ORDINAL = EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_LONG = struct.Struct("<q")
_LE32 = struct.Struct("<i")
_U32, _U64 = struct.Struct(">I"), struct.Struct(">Q")
_OFFSET = 1 << 63


# ---------------------------------------------------------------- datetime


def micros_from_datetime(value: datetime) -> int:
    """Return the microseconds since 1970-01-01 UTC; a naive datetime means UTC."""
    return (value - (NAIVE_EPOCH if value.tzinfo is None else EPOCH)) // _MICROSECOND


def datetime_from_micros(micros: int) -> datetime:
    """Return the aware UTC datetime of microseconds since 1970-01-01."""
    return EPOCH + timedelta(microseconds=micros)


def _check_datetime(value: Any) -> datetime:
    moment: datetime = exactly(datetime, value)
    if moment.utcoffset() is None:  # naive, or with a zone that does not know its offset
        return NAIVE_EPOCH + (moment.replace(tzinfo=None, fold=0) - NAIVE_EPOCH)
    try:
        return EPOCH + (moment - EPOCH)
    except OverflowError as error:
        raise type_error("datetime", value, str(error)) from None


def _datetime_to_bytes(value: datetime) -> bytes:
    return (b"n" if value.tzinfo is None else b"u") + _LONG.pack(micros_from_datetime(value))


def _datetime_from_bytes(data: bytes) -> datetime:
    micros = timedelta(microseconds=_LONG.unpack(data[1:])[0])
    return (NAIVE_EPOCH if data[:1] == b"n" else EPOCH) + micros


def _pack_datetime(value: Any) -> Any:
    value = _check_datetime(value)
    micros = micros_from_datetime(value)
    return micros if value.tzinfo is not None else [micros]


def _unpack_datetime(plain: Any) -> datetime:
    if isinstance(plain, list):
        (micros,) = plain
        return NAIVE_EPOCH + timedelta(microseconds=micros)
    return datetime_from_micros(plain)


def _aware_datetime(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise UnfitError
    return value


def _datetime_from_column(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"expected a timestamp, got {brief(value)}")
    return datetime_from_micros(micros_from_datetime(value))


DATETIME = ScalarSerializer(
    "datetime",
    datetime,
    _check_datetime,
    _datetime_to_bytes,
    _datetime_from_bytes,
    ColumnForm(pa.timestamp("us", "UTC"), _aware_datetime, _datetime_from_column),
    _pack_datetime,
    _unpack_datetime,
    frozenset({"int", "list"}),
    exact_column=ColumnForm(pa.string(), datetime.isoformat, datetime.fromisoformat),
    trusted=False,  # it may be in another zone than UTC
)


# ---------------------------------------------------------------- date


def _check_date(value: Any) -> date:
    day: date = exactly(date, value)
    return day


DATE = ScalarSerializer(
    "date",
    date,
    _check_date,
    lambda value: value.toordinal().to_bytes(4, "little"),
    lambda data: date.fromordinal(int.from_bytes(data, "little")),
    ColumnForm(pa.date32()),
    lambda value: _check_date(value).toordinal(),
    date.fromordinal,
    frozenset({"int"}),
)


# ---------------------------------------------------------------- timedelta


def micros_from_timedelta(value: timedelta) -> int:
    """Return the microseconds of a duration, which may have more than 64 bits."""
    return value // _MICROSECOND


def timedelta_from_micros(micros: int) -> timedelta:
    """Return the duration of some microseconds."""
    return timedelta(microseconds=micros)


def _check_timedelta(value: Any) -> timedelta:
    duration: timedelta = exactly(timedelta, value)
    return duration


TIMEDELTA = ScalarSerializer(
    "timedelta",
    timedelta,
    _check_timedelta,
    lambda value: int_to_bytes(micros_from_timedelta(value)),
    lambda data: timedelta_from_micros(int_from_bytes(data)),
    ColumnForm(
        pa.int64(),
        lambda value: require_int64(micros_from_timedelta(value)),
        timedelta_from_micros,
    ),
    lambda value: pack_int(micros_from_timedelta(_check_timedelta(value))),
    lambda plain: timedelta_from_micros(unpack_int(plain)),
    frozenset({"int", "ext"}),
    exact_column=ColumnForm(
        pa.string(),
        lambda value: int_to_text(micros_from_timedelta(value)),
        lambda text: timedelta_from_micros(int_from_text(text)),
    ),
)


# ---------------------------------------------------------------- time


def _micros_from_time(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _time_from_micros(micros: int) -> time:
    """Return the time some microseconds after midnight; raise ValueError beyond a day."""
    seconds, microsecond = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, microsecond)


def _check_time(value: Any) -> time:
    moment: time = exactly(time, value)
    if moment.tzinfo is not None:
        raise type_error("time", value, "it has a zone, which a time without a day cannot keep")
    return moment.replace(fold=0)


def _time_from_text(text: Any) -> time:
    """Return the time of an ISO text; raise ValueError or TypeError for anything else."""
    if not isinstance(text, str):
        raise TypeError(f"expected the ISO text of a time, got {brief(text)}")
    made = time.fromisoformat(text)
    if made.tzinfo is not None or made.isoformat() != text:
        raise ValueError(f"{brief(text)} is not a time as ISO writes it, in no zone: 01:02:03")
    return made


TIME = ScalarSerializer(
    "time",
    time,
    _check_time,
    lambda value: int_to_bytes(_micros_from_time(value)),
    lambda data: _time_from_micros(int_from_bytes(data)),
    ColumnForm(pa.string(), time.isoformat, _time_from_text),
    lambda value: _micros_from_time(_check_time(value)),
    lambda plain: _time_from_micros(unpack_int(plain)),
    frozenset({"int"}),
    trusted=False,  # it may have a zone or a fold
)


# ---------------------------------------------------------------- keys


class DateKeyCodec(ScalarKeyCodec):
    """``date`` as its ordinal."""

    serializer = DATE
    hashed = staticmethod(lambda key: _LE32.pack(key.toordinal() - _EPOCH_ORDINAL))

    @override
    def encode(self, key: Any) -> bytes:
        return _U32.pack(key.toordinal())

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return date.fromordinal(_U32.unpack_from(data, start)[0]), start + 4


class _MicrosKeyCodec(ScalarKeyCodec):
    """Keys that are a number of microseconds, of 64 bits."""

    _to_micros: ClassVar[staticmethod[[Any], int]]
    _from_micros: ClassVar[staticmethod[[int], Any]]
    _offset = _OFFSET
    """Added to a number, so that the bytes of negative numbers sort before all others."""

    @override
    def encode(self, key: Any) -> bytes:
        return _U64.pack(self._to_micros(key) + self._offset)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return self._from_micros(_U64.unpack_from(data, start)[0] - self._offset), start + 8


class DatetimeKeyCodec(_MicrosKeyCodec):
    """``datetime`` as microseconds UTC; a naive key means UTC and comes back aware."""

    serializer = DATETIME
    hashed = staticmethod(lambda key: _LONG.pack(micros_from_datetime(key)))
    _to_micros = staticmethod(micros_from_datetime)
    _from_micros = staticmethod(datetime_from_micros)

    @override
    def check(self, key: Any) -> Any:
        key = self._check(key)
        return key.replace(tzinfo=UTC) if key.tzinfo is None else key


class TimedeltaKeyCodec(_MicrosKeyCodec):
    """``timedelta`` as microseconds, as Spark's ``interval day to second``."""

    serializer = TIMEDELTA
    hashed = staticmethod(lambda key: _LONG.pack(micros_from_timedelta(key)))
    _to_micros = staticmethod(micros_from_timedelta)
    _from_micros = staticmethod(timedelta_from_micros)

    @override
    def check(self, key: Any) -> Any:
        key = self._check(key)
        if not fits_int64(micros_from_timedelta(key)):
            reason = "a key has microseconds of 64 bits"
            raise StateTypeError("timedelta", brief(key), reason=reason)
        return key


class TimeKeyCodec(_MicrosKeyCodec):
    """``time`` as microseconds since midnight."""

    serializer = TIME
    hashed = staticmethod(lambda key: _LONG.pack(_micros_from_time(key)))
    _to_micros = staticmethod(_micros_from_time)
    _from_micros = staticmethod(_time_from_micros)
    _offset = 0


TIME_KEYS = (DatetimeKeyCodec(), DateKeyCodec(), TimedeltaKeyCodec(), TimeKeyCodec())
