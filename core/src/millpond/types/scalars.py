"""Serializers of the plain, immutable types."""

from __future__ import annotations

import math
import operator
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import attrs
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.base import Compatibility, Outcome, SerializerSnapshot, TypeSerializer

__all__ = [
    "SCALARS",
    "ScalarSerializer",
    "datetime_from_micros",
    "decimal_from_text",
    "exact_float",
    "fits_int64",
    "int_from_text",
    "int_to_text",
    "micros_from_datetime",
    "scalar_named",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the epoch of naive values is naive
_MICROSECOND = timedelta(microseconds=1)
_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")
_OFFSET = 1 << 63
_DECIMAL_BITS = 2000
"""Some 600 digits: below the smallest limit that ``sys.set_int_max_str_digits`` takes."""


@attrs.frozen
class ScalarSerializer(TypeSerializer[Any]):
    """A serializer made of three functions, for a type without parts."""

    type_name: str
    exact_type: type
    coerce: Callable[[Any], Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    sized: bool = False
    trusted: bool = True
    immutable: bool = True

    @property
    @override
    def trusted_type(self) -> type | None:  # type: ignore[override]
        return self.exact_type if self.trusted else None

    @override
    def check(self, value: Any) -> Any:
        """The value as exactly this type; see the base class."""
        # The exact type alone saves 0.1 µs a write, where it says everything: a str still has to
        # be free of surrogates, and a datetime has to be in UTC.
        if self.trusted and type(value) is self.exact_type:
            return value
        return self.coerce(value)

    @override
    def serialize(self, value: Any) -> bytes:
        return self.encode(value)

    @override
    def deserialize(self, data: bytes) -> Any:
        return self.decode(data)

    @override
    def snapshot(self) -> SerializerSnapshot:
        return SerializerSnapshot(self.type_name)

    @override
    def compatibility(self, old: SerializerSnapshot) -> Compatibility:
        """An int may become a float or a Decimal."""
        if (old.id, self.type_name) not in _WIDENINGS or old.version != 1:
            return Compatibility.of_snapshots(old, self.snapshot())
        widen, before = _WIDENINGS[old.id, self.type_name], SCALARS[int]
        return Compatibility(
            Outcome.AFTER_MIGRATION, lambda data: self.encode(widen(before.decode(data)))
        )

    @override
    def weight(self, value: Any) -> int:
        return 64 + len(value) if self.sized else 64


def _refuse(expected: str, value: Any, reason: str = "") -> StateTypeError:
    return StateTypeError(expected, brief(value), reason=reason)


def _exactly(kind: type, value: Any) -> Any:
    """A value of exactly a type; a subclass would come back as something else.

    Numbers and texts of numpy become Python's: they are values of the same kind, and the only
    subclasses whose meaning is known.
    """
    if type(value) is kind:
        return value
    if isinstance(value, kind) and type(value).__module__ == "numpy":
        return kind(value)
    subclass = isinstance(value, kind) and not isinstance(value, bool)
    name = kind.__name__
    reason = f"its type is a subclass, which would come back as {name}" if subclass else ""
    raise _refuse(name, value, reason)


def _to_int(value: Any) -> int:
    if hasattr(value, "__index__") and not isinstance(value, (int, type)):
        return int(operator.index(value))
    return int(_exactly(int, value))


def _to_float(value: Any) -> float:
    if hasattr(value, "__index__") and not isinstance(value, type):
        try:
            return exact_float(_to_int(value))
        except (ValueError, StateTypeError) as error:
            raise _refuse("float", value, str(error)) from None
    return float(_exactly(float, value))


def _to_bool(value: Any) -> bool:
    return bool(_exactly(bool, value))


def _to_str(value: Any) -> str:
    text: str = value if type(value) is str else _exactly(str, value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _refuse("str", value, str(error)) from None
    return text


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return bytes(_exactly(bytes, value))


def _to_decimal(value: Any) -> Decimal:
    if type(value) is int:
        return Decimal(value)
    made: Decimal = _exactly(Decimal, value)
    return made


def _to_datetime(value: Any) -> datetime:
    moment: datetime = _exactly(datetime, value)
    if moment.tzinfo is None:
        return NAIVE_EPOCH + (moment.replace(fold=0) - NAIVE_EPOCH)
    try:
        return EPOCH + (moment - EPOCH)
    except OverflowError as error:
        raise _refuse("datetime", value, str(error)) from None


def _to_date(value: Any) -> date:
    day: date = _exactly(date, value)
    return day


def _to_uuid(value: Any) -> uuid.UUID:
    made: uuid.UUID = _exactly(uuid.UUID, value)
    return made


def micros_from_datetime(value: datetime) -> int:
    """Microseconds since 1970-01-01 UTC; a naive datetime means UTC."""
    epoch = NAIVE_EPOCH if value.tzinfo is None else EPOCH
    return (value - epoch) // _MICROSECOND


def datetime_from_micros(micros: int) -> datetime:
    """The aware UTC datetime of microseconds since 1970-01-01."""
    return EPOCH + timedelta(microseconds=micros)


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
        ValueError: it is no integer.
        TypeError: it is no text.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected the digits of an integer, got {brief(text)}")
    return int(text, 16) if text.lstrip("-").startswith("0x") else int(text)


def _encode_datetime(value: datetime) -> bytes:
    flag = b"n" if value.tzinfo is None else b"u"
    return flag + _LONG.pack(micros_from_datetime(value))


def _decode_datetime(data: bytes) -> datetime:
    micros = timedelta(microseconds=_LONG.unpack(data[1:])[0])
    return (NAIVE_EPOCH if data[:1] == b"n" else EPOCH) + micros


def decimal_from_text(text: str) -> Decimal:
    """The decimal of a text.

    Raises:
        ValueError: it is none.
        TypeError: it is no text.
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
        raise ValueError(f"{brief(value)} is no exact float; declare Decimal, or keep int")
    return made


_WIDENINGS: dict[tuple[str, str], Callable[[int], Any]] = {
    ("int", "float"): exact_float,
    ("int", "Decimal"): Decimal,
}

SCALARS: dict[type, ScalarSerializer] = {
    int: ScalarSerializer("int", int, _to_int, int_to_bytes, int_from_bytes),
    float: ScalarSerializer(
        "float", float, _to_float, _DOUBLE.pack, lambda data: _DOUBLE.unpack(data)[0]
    ),
    bool: ScalarSerializer("bool", bool, _to_bool, lambda v: b"\1" if v else b"\0", b"\1".__eq__),
    str: ScalarSerializer("str", str, _to_str, str.encode, bytes.decode, sized=True, trusted=False),
    bytes: ScalarSerializer("bytes", bytes, _to_bytes, bytes, bytes, sized=True),
    Decimal: ScalarSerializer(
        "Decimal",
        Decimal,
        _to_decimal,
        lambda v: str(v).encode(),
        lambda data: decimal_from_text(data.decode("ascii")),
    ),
    datetime: ScalarSerializer(
        "datetime", datetime, _to_datetime, _encode_datetime, _decode_datetime, trusted=False
    ),
    date: ScalarSerializer(
        "date",
        date,
        _to_date,
        lambda v: v.toordinal().to_bytes(4, "little"),
        lambda data: date.fromordinal(int.from_bytes(data, "little")),
    ),
    uuid.UUID: ScalarSerializer(
        "UUID", uuid.UUID, _to_uuid, lambda v: v.bytes, lambda data: uuid.UUID(bytes=data)
    ),
}

_BY_NAME = {serializer.type_name: serializer for serializer in SCALARS.values()}


def scalar_named(name: str) -> ScalarSerializer | None:
    """The serializer of a plain type by the name in its snapshot; None for any other."""
    return _BY_NAME.get(name)
