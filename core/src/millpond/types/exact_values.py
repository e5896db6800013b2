"""Numbers and moments turned into other forms without loss, and back."""

from __future__ import annotations

import math
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from millpond.errors import brief

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the epoch of naive values is naive
_MICROSECOND = timedelta(microseconds=1)
_OFFSET = 1 << 63
_DECIMAL_BITS = 2000
"""Some 600 digits: below the smallest limit that ``sys.set_int_max_str_digits`` takes."""


def micros_from_datetime(value: datetime) -> int:
    """Microseconds since 1970-01-01 UTC; a naive datetime means UTC."""
    epoch = NAIVE_EPOCH if value.tzinfo is None else EPOCH
    return (value - epoch) // _MICROSECOND


def datetime_from_micros(micros: int) -> datetime:
    """The aware UTC datetime of microseconds since 1970-01-01."""
    return EPOCH + timedelta(microseconds=micros)


def micros_from_timedelta(value: timedelta) -> int:
    """The microseconds of a duration; beyond some 292,000 years they are of more than 64 bits."""
    return value // _MICROSECOND


def timedelta_from_micros(micros: int) -> timedelta:
    """The inverse of :func:`micros_from_timedelta`."""
    return timedelta(microseconds=micros)


def micros_from_time(value: time) -> int:
    """The microseconds of a naive time since midnight."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def time_from_micros(micros: int) -> time:
    """The inverse of :func:`micros_from_time`; ValueError beyond a day."""
    seconds, microsecond = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, microsecond)


def time_from_text(text: str) -> time:
    """The time of an ISO text.

    Raises:
        ValueError: the text is not a naive time, or is finer than microseconds.
        TypeError: it is not a text.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected the ISO text of a time, got {brief(text)}")
    made = time.fromisoformat(text)
    if made.tzinfo is not None or made.isoformat() != text:
        raise ValueError(f"{brief(text)} is not a time as ISO writes it, in no zone: 01:02:03")
    return made


def int_to_bytes(value: int) -> bytes:
    """Two's complement, little-endian, as short as the number allows; exact at any size."""
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def int_from_bytes(data: bytes) -> int:
    """The inverse of :func:`int_to_bytes`."""
    return int.from_bytes(data, "little", signed=True)


def fits_int64(value: Any) -> bool:
    """Whether a value is exactly an int, of 64 bits.

    ``value in range(...)`` compares with each number of the range where the value is anything
    but an exact int.
    """
    return type(value) is int and -_OFFSET <= value < _OFFSET


def int_to_text(value: int) -> str:
    """An int as decimal digits; as hexadecimal ones with ``0x`` where it has very many.

    Python refuses to turn more than a few thousand decimal digits into a number, or back.
    """
    return str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)


def int_from_text(text: str) -> int:
    """The inverse of :func:`int_to_text`.

    Raises:
        ValueError: it is not an integer.
        TypeError: it is not a text.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected the digits of an integer, got {brief(text)}")
    return int(text, 16) if text.lstrip("-").startswith("0x") else int(text)


def decimal_from_text(text: str) -> Decimal:
    """The decimal of a text.

    Raises:
        ValueError: the text is not a decimal number.
        TypeError: it is not a text.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected the text of a decimal, got {brief(text)}")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{brief(text)} is not a decimal") from None


def exact_float(value: int) -> float:
    """The float of an int, where it is the same number.

    Raises:
        ValueError: it is not.
    """
    try:
        made = float(value)
    except OverflowError:
        made = math.inf
    if math.isinf(made) or int(made) != value:
        raise ValueError(
            f"a float cannot hold {brief(value)} exactly; declare Decimal, or keep int"
        )
    return made
