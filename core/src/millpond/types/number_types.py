"""The scalar types int, float, bool and Decimal, with all their conversions."""

from __future__ import annotations

import math
import operator
import struct
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.scalar_base import (
    ColumnForm,
    ScalarKeyCodec,
    ScalarSerializer,
    UnfitError,
    exactly,
    int_from_bytes,
    int_to_bytes,
    plain_scalar,
    type_error,
)

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_OFFSET, _MASK = 1 << 63, (1 << 64) - 1
_MAX_DECIMAL_BITS = 2000
"""About 600 decimal digits, which no setting of ``sys.set_int_max_str_digits`` forbids."""
_MAX_KEY_DIGITS = 1000
"""The maximum number of digits of a Decimal key before the point, and also after it."""
_DOUBLE = struct.Struct("<d")
_BE_DOUBLE = struct.Struct(">d")
_LE32, _LE64 = struct.Struct("<i"), struct.Struct("<q")
_U32, _U64 = struct.Struct(">I"), struct.Struct(">Q")
_Ext = msgspec.msgpack.Ext
_BIG_INT = 1
"""MessagePack's extension code for ints of more than 64 bits."""


# ---------------------------------------------------------------- int


def fits_int64(value: Any) -> bool:
    """Return whether `value` is an int of at most 64 bits, and not a bool."""
    return type(value) is int and _LEAST <= value <= _GREATEST


def _check_int(value: Any) -> int:
    """Return `value` as an int. It may be an integer of any library that defines ``__index__``."""
    if type(value) is int:
        return value
    plain = plain_scalar("int", value)
    if hasattr(plain, "__index__") and not isinstance(plain, (int, type)):
        try:
            return int(operator.index(plain))
        except TypeError as error:  # a NumPy array of several numbers or of floats
            raise type_error("int", plain, str(error)) from None
    return int(exactly(int, value))


def pack_int(value: Any) -> Any:
    """Return `value` in the form that MessagePack encodes, after checking that it is an int.

    An int of more than 64 bits becomes a MessagePack extension.
    """
    if type(value) is int and _LEAST <= value <= _GREATEST:  # fits_int64, without the call
        return value
    value = _check_int(value)
    return value if fits_int64(value) else _Ext(_BIG_INT, int_to_bytes(value))


def unpack_int(value: Any) -> int:
    """Return the int that ``pack_int`` has packed; raise StateTypeError for any other value."""
    if type(value) is int:
        return value
    if isinstance(value, _Ext) and value.code == _BIG_INT:
        return int_from_bytes(bytes(value.data))
    raise type_error("int", value)


def require_int64(value: int) -> int:
    """Return `value`; raise UnfitError if it has more than 64 bits."""
    if not fits_int64(value):
        raise UnfitError
    return value


def int_to_text(value: int) -> str:
    """Return an int as decimal digits, or as hexadecimal digits with ``0x`` if it is very large.

    Python refuses to convert an int of more than a few thousand decimal digits.
    """
    return str(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)


def int_from_text(text: Any) -> int:
    """Return the int in a text of ``int_to_text``; raise ValueError or TypeError for any other."""
    return int(text, 0)


INT = ScalarSerializer(
    "int",
    int,
    _check_int,
    int_to_bytes,
    int_from_bytes,
    ColumnForm(pa.int64(), require_int64),
    pack_int,
    unpack_int,
    frozenset({"int", "ext"}),
    exact_column=ColumnForm(pa.string(), int_to_text, int_from_text),
)


def _check_int_key(key: Any) -> int:
    checked = key if type(key) is int else _check_int(key)
    if not _LEAST <= checked <= _GREATEST:
        raise StateTypeError("int of 64 bits", brief(key), reason="keys are bigint")
    return checked


# ---------------------------------------------------------------- float


def exact_float(value: int) -> float:
    """Return the float that is equal to an int; raise ValueError if there is none."""
    try:
        made = float(value)
    except OverflowError:
        made = math.inf
    if math.isinf(made) or int(made) != value:
        raise ValueError(
            f"a float cannot hold {brief(value)} exactly; declare Decimal, or keep int"
        )
    return made


def _check_float(value: Any) -> float:
    """Return `value` as a float; an integer of any library is accepted if an equal float exists."""
    if type(value) is float:
        return value
    plain = plain_scalar("float", value)
    if hasattr(plain, "__index__") and not isinstance(plain, type):
        try:
            return exact_float(_check_int(plain))
        except (StateTypeError, ValueError) as error:
            reason = error.reason if isinstance(error, StateTypeError) else str(error)
            raise type_error("float", plain, reason) from None
    return float(exactly(float, value))


FLOAT = ScalarSerializer(
    "float",
    float,
    _check_float,
    _DOUBLE.pack,
    lambda data: _DOUBLE.unpack(data)[0],
    ColumnForm(pa.float64()),
    from_int=exact_float,
)


def _check_float_key(key: Any) -> float:
    """Return a float key in the form that Spark hashes: 0.0 for -0.0, and one NaN for all NaNs."""
    key = _check_float(key)
    return math.nan if key != key else key + 0.0  # noqa: PLR0124 - only NaN differs from itself


def _encode_float(key: float) -> bytes:
    """Return 8 bytes that sort as the numbers do. All bits of a negative number are inverted."""
    bits = _U64.unpack(_BE_DOUBLE.pack(key))[0]
    return _U64.pack(bits ^ _MASK if bits >= _OFFSET else bits | _OFFSET)


def _decode_float(data: bytes, start: int) -> tuple[float, int]:
    bits = _U64.unpack_from(data, start)[0]
    bits = bits ^ _OFFSET if bits >= _OFFSET else bits ^ _MASK
    return _check_float_key(_BE_DOUBLE.unpack(_U64.pack(bits))[0]), start + 8


# ---------------------------------------------------------------- bool


def _bool_to_byte(value: bool) -> bytes:  # noqa: FBT001 - the value itself
    return b"\1" if value else b"\0"


BOOL = ScalarSerializer(
    "bool",
    bool,
    lambda value: value if type(value) is bool else exactly(bool, value),
    _bool_to_byte,
    b"\1".__eq__,
    ColumnForm(pa.bool_()),
)


# ---------------------------------------------------------------- Decimal


def _check_decimal(value: Any) -> Decimal:
    """Return `value` as a Decimal. It may be an int."""
    if type(value) is Decimal:
        return value
    plain = plain_scalar("Decimal", value)
    return Decimal(plain) if type(plain) is int else Decimal(exactly(Decimal, value))


def _decimal_from_text(text: Any) -> Decimal:
    """Return the Decimal of a text; raise ValueError or TypeError if there is none."""
    if not isinstance(text, str):
        raise TypeError(f"expected the text of a decimal, got {brief(text)}")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{brief(text)} is not a decimal") from None


DECIMAL = ScalarSerializer(
    "Decimal",
    Decimal,
    _check_decimal,
    lambda value: str(value).encode(),
    lambda data: _decimal_from_text(data.decode("ascii")),
    ColumnForm(pa.string(), str, _decimal_from_text),
    lambda value: str(_check_decimal(value)),
    _decimal_from_text,
    frozenset({"str"}),
    from_int=Decimal,
)


def _check_decimal_key(key: Any) -> Decimal:
    """Return a finite Decimal with a limited number of digits, and 0 for -0."""
    checked = _check_decimal(key)
    if not checked.is_finite():
        raise StateTypeError("finite Decimal", brief(key))
    exponent: Any = checked.as_tuple().exponent
    if not -_MAX_KEY_DIGITS <= exponent <= checked.adjusted() < _MAX_KEY_DIGITS:
        reason = f"a key has at most {_MAX_KEY_DIGITS} digits before and after its point"
        raise StateTypeError("Decimal", brief(key), reason=reason)
    return checked or checked.copy_abs()


def _encode_decimal(key: Decimal) -> bytes:
    """Return bytes that sort by the number's value, then by its scale.

    The bytes consist of the sign (one byte), the number of digits before the point, the digits
    without leading and trailing zeros, a zero byte, and the exponent. For a negative number, the
    bytes between sign and exponent are inverted.
    """
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    scale = _U32.pack(exponent + (1 << 31))
    if not key:
        return b"\1" + scale
    text = "".join(map(str, digits)).lstrip("0")
    body = _U32.pack(len(text) + exponent + (1 << 31)) + text.rstrip("0").encode() + b"\0"
    if sign:
        return b"\0" + bytes(255 - byte for byte in body) + scale
    return b"\2" + body + scale


def _decode_decimal(data: bytes, start: int) -> tuple[Decimal, int]:
    sign = data[start]
    if sign == 1:
        exponent = _U32.unpack_from(data, start + 1)[0] - (1 << 31)
        return Decimal((0, (0,), exponent)), start + 5
    end = data.index(b"\xff" if sign == 0 else b"\0", start + 5)
    body = data[start + 1 : end]
    body = bytes(255 - byte for byte in body) if sign == 0 else body
    exponent = _U32.unpack_from(data, end + 1)[0] - (1 << 31)
    size = _U32.unpack_from(body)[0] - (1 << 31) - exponent
    if size > 3 * _MAX_KEY_DIGITS:
        raise ValueError(f"a decimal key of {size} digits")
    digits = tuple(map(int, body[4:].decode().ljust(size, "0")))
    return Decimal((int(sign == 0), digits, exponent)), end + 5


def _hashed_decimal(key: Decimal) -> bytes:
    """Return the bytes that Spark hashes.

    For more than 18 digits, these are the bytes of Java's BigInteger.
    """
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    unscaled: int = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    if abs(unscaled) < 10**18:
        return _LE64.pack(unscaled)
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


# ---------------------------------------------------------------- keys


class _DecimalKeyCodec(ScalarKeyCodec):
    """The key codec of Decimals."""

    @override
    def encode_bound(self, bound: Any) -> bytes:
        """Return the bytes of `bound` without its scale.

        So a bound of 10 is also the bound of the keys 10.0 and 10.00, which sort before the key 10.
        """
        return super().encode_bound(bound)[: -_U32.size]


NUMBER_KEYS = (
    # Hashed as Spark's bigint, and encoded as 8 bytes with the sign bit inverted.
    ScalarKeyCodec(
        INT,
        encode=lambda key: _U64.pack(key + _OFFSET),
        decode=lambda data, start: (_U64.unpack_from(data, start)[0] - _OFFSET, start + 8),
        hashed=_LE64.pack,
        check=_check_int_key,
        canonical=int,
    ),
    ScalarKeyCodec(
        FLOAT, _encode_float, _decode_float, hashed=_DOUBLE.pack, check=_check_float_key
    ),
    ScalarKeyCodec(
        BOOL,
        _bool_to_byte,
        decode=lambda data, start: (data[start] == 1, start + 1),
        hashed=_LE32.pack,
    ),
    # Spark hashes the unscaled number. So 1.0 and 1.00 are different keys, as in Java's
    # BigDecimal. All keys in a column have one scale, which is part of the codec's snapshot.
    _DecimalKeyCodec(
        DECIMAL,
        _encode_decimal,
        _decode_decimal,
        _hashed_decimal,
        check=_check_decimal_key,
        exact=False,
    ),
)
