"""Key codecs of moments, dates, durations and times of day."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import xxhash
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.exact_values import (
    datetime_from_micros,
    fits_int64,
    micros_from_datetime,
    micros_from_time,
    micros_from_timedelta,
    time_from_micros,
    timedelta_from_micros,
)
from millpond.types.keys import HASH_SEED
from millpond.types.scalar_keys import ScalarKeyCodec

_OFFSET = 1 << 63
_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_LE64 = struct.Struct("<q")
_LE32 = struct.Struct("<i")
_xxh64 = xxhash.xxh64_intdigest


class DatetimeKeyCodec(ScalarKeyCodec):
    """``datetime`` as microseconds UTC; a naive key means UTC and comes back aware."""

    python_type = datetime

    @override
    def check(self, key: Any) -> Any:
        key = self._check(key)
        return key.replace(tzinfo=UTC) if key.tzinfo is None else key

    @override
    def encode(self, key: Any) -> bytes:
        return _U64.pack(micros_from_datetime(key) + _OFFSET)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return datetime_from_micros(_U64.unpack_from(data, start)[0] - _OFFSET), start + 8

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(_LE64.pack(micros_from_datetime(key)), seed)


class DateKeyCodec(ScalarKeyCodec):
    """``date`` as its ordinal."""

    python_type = date
    _epoch = date(1970, 1, 1).toordinal()

    @override
    def encode(self, key: Any) -> bytes:
        return _U32.pack(key.toordinal())

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return date.fromordinal(_U32.unpack_from(data, start)[0]), start + 4

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(_LE32.pack(key.toordinal() - self._epoch), seed)


class TimedeltaKeyCodec(ScalarKeyCodec):
    """``timedelta`` as microseconds of 64 bits, as Spark's ``interval day to second``."""

    python_type = timedelta

    @override
    def check(self, key: Any) -> Any:
        key = self._check(key)
        if not fits_int64(micros_from_timedelta(key)):
            reason = "a key has microseconds of 64 bits"
            raise StateTypeError("timedelta", brief(key), reason=reason)
        return key

    @override
    def encode(self, key: Any) -> bytes:
        return _U64.pack(micros_from_timedelta(key) + _OFFSET)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return timedelta_from_micros(_U64.unpack_from(data, start)[0] - _OFFSET), start + 8

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(_LE64.pack(micros_from_timedelta(key)), seed)


class TimeKeyCodec(ScalarKeyCodec):
    """``time`` as microseconds since midnight."""

    python_type = time

    @override
    def encode(self, key: Any) -> bytes:
        return _U64.pack(micros_from_time(key))

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return time_from_micros(_U64.unpack_from(data, start)[0]), start + 8

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(_LE64.pack(micros_from_time(key)), seed)
