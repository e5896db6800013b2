"""The scalar types datetime, date, timedelta and time, with all their conversions."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from millpond.errors import StateTypeError, brief
from millpond.types.number_types import (
    fits_int64,
    int_from_text,
    int_to_text,
    pack_int,
    require_int64,
    unpack_int,
)
from millpond.types.scalar_base import (
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
    """Return the microseconds since 1970-01-01 UTC. A naive datetime is taken as UTC."""
    return (value - (NAIVE_EPOCH if value.tzinfo is None else EPOCH)) // _MICROSECOND


def datetime_from_micros(micros: int) -> datetime:
    """Return the aware datetime in UTC for a number of microseconds since 1970-01-01."""
    return EPOCH + timedelta(microseconds=micros)


def _check_datetime(value: Any) -> datetime:
    """Return an aware datetime converted to UTC, or a naive datetime without a fold."""
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
    """Return the microseconds of a datetime: an int, or a list with one int if it is naive."""
    value = _check_datetime(value)
    micros = micros_from_datetime(value)
    return micros if value.tzinfo is not None else [micros]


def _unpack_datetime(plain: Any) -> datetime:
    if isinstance(plain, list):
        (micros,) = plain
        return NAIVE_EPOCH + timedelta(microseconds=micros)
    return datetime_from_micros(plain)


def _aware_datetime(value: datetime) -> datetime:
    """Return an aware datetime; raise UnfitError for a naive one, which UTC would change."""
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
    trusted=False,  # a datetime may be in another zone than UTC
)


# ---------------------------------------------------------------- date

DATE = ScalarSerializer(
    "date",
    date,
    partial(exactly, date),
    lambda value: value.toordinal().to_bytes(4, "little"),
    lambda data: date.fromordinal(int.from_bytes(data, "little")),
    ColumnForm(pa.date32()),
    lambda value: exactly(date, value).toordinal(),
    date.fromordinal,
    frozenset({"int"}),
)


# ---------------------------------------------------------------- timedelta


def _micros_from_timedelta(value: timedelta) -> int:
    """Return the number of microseconds of a duration. The number may exceed 64 bits."""
    return value // _MICROSECOND


def _timedelta_from_micros(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


TIMEDELTA = ScalarSerializer(
    "timedelta",
    timedelta,
    partial(exactly, timedelta),
    lambda value: int_to_bytes(_micros_from_timedelta(value)),
    lambda data: _timedelta_from_micros(int_from_bytes(data)),
    ColumnForm(
        pa.int64(),
        lambda value: require_int64(_micros_from_timedelta(value)),
        _timedelta_from_micros,
    ),
    lambda value: pack_int(_micros_from_timedelta(exactly(timedelta, value))),
    lambda plain: _timedelta_from_micros(unpack_int(plain)),
    frozenset({"int", "ext"}),
    exact_column=ColumnForm(
        pa.string(),
        lambda value: int_to_text(_micros_from_timedelta(value)),
        lambda text: _timedelta_from_micros(int_from_text(text)),
    ),
)


# ---------------------------------------------------------------- time


def _micros_from_time(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _time_from_micros(micros: int) -> time:
    """Return the time of day after `micros` microseconds; raise ValueError for 24 hours or more."""
    seconds, microsecond = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, microsecond)


def _check_time(value: Any) -> time:
    """Return a time without a fold; refuse a time zone, because its offset depends on the date."""
    moment: time = exactly(time, value)
    if moment.tzinfo is not None:
        raise type_error("time", value, "it has a zone, which a time without a day cannot keep")
    return moment.replace(fold=0)


TIME = ScalarSerializer(
    "time",
    time,
    _check_time,
    lambda value: int_to_bytes(_micros_from_time(value)),
    lambda data: _time_from_micros(int_from_bytes(data)),
    ColumnForm(pa.string(), time.isoformat, time.fromisoformat),
    lambda value: _micros_from_time(_check_time(value)),
    lambda plain: _time_from_micros(unpack_int(plain)),
    frozenset({"int"}),
    trusted=False,  # a time may have a zone or a fold
)


# ---------------------------------------------------------------- keys


def _check_datetime_key(key: Any) -> datetime:
    """Return an aware datetime in UTC. A naive key is taken as UTC."""
    moment = _check_datetime(key)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _check_timedelta_key(key: Any) -> timedelta:
    checked: timedelta = exactly(timedelta, key)
    if not fits_int64(_micros_from_timedelta(checked)):
        reason = "a key has microseconds of 64 bits"
        raise StateTypeError("timedelta", brief(key), reason=reason)
    return checked


def _micros_codec(
    serializer: ScalarSerializer,
    check: Callable[[Any], Any],
    to_micros: Callable[[Any], int],
    from_micros: Callable[[int], Any],
    offset: int = _OFFSET,
) -> ScalarKeyCodec:
    """Return the codec of keys that are stored and hashed as microseconds of 64 bits.

    Args:
        serializer: the serializer of the type.
        check: see ``KeyCodec``.
        to_micros: a function that returns the microseconds of a checked key.
        from_micros: a function that returns the key for a number of microseconds.
        offset: a number that is added, so that the bytes of negative numbers sort first.
    """
    return ScalarKeyCodec(
        serializer,
        encode=lambda key: _U64.pack(to_micros(key) + offset),
        decode=lambda data, start: (
            from_micros(_U64.unpack_from(data, start)[0] - offset),
            start + 8,
        ),
        hashed=lambda key: _LONG.pack(to_micros(key)),
        check=check,
    )


TIME_KEYS = (
    _micros_codec(DATETIME, _check_datetime_key, micros_from_datetime, datetime_from_micros),
    ScalarKeyCodec(
        DATE,
        encode=lambda key: _U32.pack(key.toordinal()),
        decode=lambda data, start: (date.fromordinal(_U32.unpack_from(data, start)[0]), start + 4),
        hashed=lambda key: _LE32.pack(key.toordinal() - _EPOCH_ORDINAL),
    ),
    # Hashed as Spark's interval day to second.
    _micros_codec(TIMEDELTA, _check_timedelta_key, _micros_from_timedelta, _timedelta_from_micros),
    _micros_codec(TIME, _check_time, _micros_from_time, _time_from_micros, offset=0),
)
