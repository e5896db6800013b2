"""Key codecs: keys, namespaces and user map keys as bytes that sort as the values do.

Every encoding says by itself where it ends, so that composite keys need no lengths: integers
have a fixed size, strings end in two zero bytes (a zero byte inside becomes ``00 FF``). The
hash of a key is Spark's ``xxhash64`` of the matching column type (seed 42, fields folded).
"""

from __future__ import annotations

import math
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import xxhash

from millpond.errors import NullValueError, StateTypeError, brief
from millpond.types.base import SerializerSnapshot, TypeSerializer
from millpond.types.scalars import SCALARS, datetime_from_micros, micros_from_datetime

__all__ = [
    "HASH_SEED",
    "VOID_NAMESPACE",
    "KeyCodec",
    "NullableKeyCodec",
    "SerializedKeyCodec",
    "TupleKeyCodec",
    "VoidKeyCodec",
    "VoidNamespace",
    "signed64",
]

HASH_SEED = 42
_INT64 = range(-(1 << 63), 1 << 63)
_OFFSET = 1 << 63
_MASK = (1 << 64) - 1
_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_LE64 = struct.Struct("<q")
_LE32 = struct.Struct("<i")
_LE_DOUBLE = struct.Struct("<d")
_BE_DOUBLE = struct.Struct(">d")
_xxh64 = xxhash.xxh64_intdigest


def signed64(digest: int) -> int:
    """An unsigned 64-bit digest as Spark's signed ``bigint``."""
    return digest - (1 << 64) if digest >= _OFFSET else digest


class KeyCodec(ABC):
    """Encodes and hashes keys of one type.

    ``exact`` says that two keys are the same exactly when Python calls them equal, so that
    a dictionary may be keyed by the object itself.
    """

    exact = True
    id = "key"

    @abstractmethod
    def check(self, key: Any) -> Any:
        """Return the key in its canonical form; raise StateTypeError for another type."""

    @abstractmethod
    def encode(self, key: Any) -> bytes:
        """The self-delimiting, order-preserving bytes of a checked key."""

    @abstractmethod
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """The key that begins at ``start``, and where it ends."""

    @abstractmethod
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """The unsigned XXH64 digest of a checked key in Spark's byte layout."""

    def snapshot(self) -> SerializerSnapshot:
        """The description that goes into every checkpoint."""
        return SerializerSnapshot(self.id)


class VoidNamespace:
    """The namespace of state that uses none."""

    def __reduce__(self) -> str:
        return "VOID_NAMESPACE"

    def __repr__(self) -> str:
        return "VOID_NAMESPACE"


VOID_NAMESPACE = VoidNamespace()


class VoidKeyCodec(KeyCodec):
    """Encodes VOID_NAMESPACE, as no bytes at all."""

    id = "void"

    def check(self, key: Any) -> Any:
        """See the base class."""
        if key is not VOID_NAMESPACE:
            raise StateTypeError("VOID_NAMESPACE", brief(key))
        return key

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return b""

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return VOID_NAMESPACE, start

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return seed


class _ScalarKeyCodec(KeyCodec):
    python_type: type

    def __init__(self) -> None:
        self.id = SCALARS[self.python_type].type_name
        self._check = SCALARS[self.python_type].check

    def check(self, key: Any) -> Any:
        return self._check(key)


class IntKeyCodec(_ScalarKeyCodec):
    """``int`` as Spark's ``bigint``: 8 bytes, sign flipped; beyond 64 bits refused."""

    python_type = int

    def check(self, key: Any) -> Any:
        """See the base class."""
        key = key if type(key) is int else self._check(key)
        if key not in _INT64:
            raise StateTypeError("int of 64 bits", brief(key), reason="keys are bigint")
        return key

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return _U64.pack(key + _OFFSET)

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return _U64.unpack_from(data, start)[0] - _OFFSET, start + 8

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(_LE64.pack(key), seed)


class BoolKeyCodec(_ScalarKeyCodec):
    """``bool`` as one byte."""

    python_type = bool

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return b"\1" if key else b"\0"

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return data[start] == 1, start + 1

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(_LE32.pack(key), seed)


class FloatKeyCodec(_ScalarKeyCodec):
    """``float``: -0.0 is 0.0 and all NaNs are one, as Spark's hash has it."""

    python_type = float

    def check(self, key: Any) -> Any:
        """See the base class."""
        key = self._check(key)
        return math.nan if key != key else key + 0.0  # noqa: PLR0124 - only NaN differs from itself

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        bits = _U64.unpack(_BE_DOUBLE.pack(key))[0]
        return _U64.pack(bits ^ _MASK if bits >= _OFFSET else bits | _OFFSET)

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        bits = _U64.unpack_from(data, start)[0]
        bits = bits ^ _OFFSET if bits >= _OFFSET else bits ^ _MASK
        return self.check(_BE_DOUBLE.unpack(_U64.pack(bits))[0]), start + 8

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(_LE_DOUBLE.pack(key), seed)


def escape(data: bytes) -> bytes:
    """Bytes that end in ``00 00`` and hold it nowhere else; the order is kept."""
    if b"\0" in data:
        data = data.replace(b"\0", b"\0\xff")
    return data + b"\0\0"


def unescape(data: bytes, start: int) -> tuple[bytes, int]:
    """The bytes that were escaped at ``start``, and where they end."""
    end = data.index(b"\0", start)
    while data[end + 1] == 0xFF:  # noqa: PLR2004 - the escape mark
        end = data.index(b"\0", end + 2)
    return data[start:end].replace(b"\0\xff", b"\0"), end + 2


class StrKeyCodec(_ScalarKeyCodec):
    """``str`` as UTF-8."""

    python_type = str

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        data: bytes = key.encode()
        return escape(data) if b"\0" in data else data + b"\0\0"

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        raw, end = unescape(data, start)
        return raw.decode(), end

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(key.encode(), seed)


class BytesKeyCodec(_ScalarKeyCodec):
    """``bytes`` as they are."""

    python_type = bytes

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return escape(key)

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return unescape(data, start)

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(key, seed)


class DecimalKeyCodec(_ScalarKeyCodec):
    """``Decimal``: sorted by value, then by scale; 1.0 and 1.00 are two keys.

    Spark hashes the unscaled number, so the scale is part of the identity, as it is for
    Java's BigDecimal. A column has one scale, so its keys never differ in it.
    """

    python_type = Decimal
    exact = False

    def check(self, key: Any) -> Any:
        """See the base class."""
        key = self._check(key)
        if not key.is_finite():
            raise StateTypeError("finite Decimal", brief(key))
        return key

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        sign, digits, exponent = key.as_tuple()
        scale = _U32.pack(exponent + (1 << 31))
        if not key:
            return b"\1" + scale
        text = "".join(map(str, digits)).lstrip("0")
        body = _U32.pack(len(text) + exponent + (1 << 31)) + text.rstrip("0").encode() + b"\0"
        if sign:
            return b"\0" + bytes(255 - byte for byte in body) + scale
        return b"\2" + body + scale

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        sign = data[start]
        if sign == 1:
            exponent = _U32.unpack_from(data, start + 1)[0] - (1 << 31)
            return Decimal((0, (0,), exponent)), start + 5
        end = data.index(b"\xff" if sign == 0 else b"\0", start + 5)
        body = data[start + 1 : end]
        body = bytes(255 - byte for byte in body) if sign == 0 else body
        exponent = _U32.unpack_from(data, end + 1)[0] - (1 << 31)
        size = _U32.unpack_from(body)[0] - (1 << 31) - exponent
        digits = tuple(map(int, body[4:].decode().ljust(size, "0")))
        return Decimal((int(sign == 0), digits, exponent)), end + 5

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        sign, digits, exponent = key.as_tuple()
        unscaled = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
        if abs(unscaled) < 10**18:
            return _xxh64(_LE64.pack(unscaled), seed)
        size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        return _xxh64(unscaled.to_bytes(size, "big", signed=True), seed)


class DatetimeKeyCodec(_ScalarKeyCodec):
    """``datetime`` as microseconds UTC; a naive key means UTC and comes back aware."""

    python_type = datetime

    def check(self, key: Any) -> Any:
        """See the base class."""
        key = self._check(key)
        return key.replace(tzinfo=UTC) if key.tzinfo is None else key

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return _U64.pack(micros_from_datetime(key) + _OFFSET)

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return datetime_from_micros(_U64.unpack_from(data, start)[0] - _OFFSET), start + 8

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(_LE64.pack(micros_from_datetime(key)), seed)


class DateKeyCodec(_ScalarKeyCodec):
    """``date`` as its ordinal."""

    python_type = date
    _epoch = date(1970, 1, 1).toordinal()

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return _U32.pack(key.toordinal())

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return date.fromordinal(_U32.unpack_from(data, start)[0]), start + 4

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(_LE32.pack(key.toordinal() - self._epoch), seed)


class UuidKeyCodec(_ScalarKeyCodec):
    """``UUID`` as 16 bytes; hashed as its string, since Spark has no such type."""

    python_type = uuid.UUID

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return bytes(key.bytes)

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return uuid.UUID(bytes=data[start : start + 16]), start + 16

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(str(key).encode(), seed)


class NullableKeyCodec(KeyCodec):
    """A part of a composite key that may be None; as in Spark, None leaves the hash as it is."""

    id = "nullable"

    def __init__(self, inner: KeyCodec) -> None:
        self._inner = inner
        self.exact = inner.exact

    def check(self, key: Any) -> Any:
        """See the base class."""
        return None if key is None else self._inner.check(key)

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return b"\0" if key is None else b"\1" + self._inner.encode(key)

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        return (None, start + 1) if data[start] == 0 else self._inner.decode(data, start + 1)

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return seed if key is None else self._inner.hash(key, seed)

    def snapshot(self) -> SerializerSnapshot:
        """See the base class."""
        return SerializerSnapshot(self.id, payload=attrs_free(self._inner.snapshot()))


class TupleKeyCodec(KeyCodec):
    """Composite keys: tuples, named tuples, frozen attrs classes and dataclasses."""

    id = "tuple"

    def __init__(
        self,
        parts: Sequence[KeyCodec],
        make: Callable[..., Any] = lambda *parts: parts,
        split: Callable[[Any], Sequence[Any]] = tuple,
        names: Sequence[str] = (),
    ) -> None:
        self._parts = tuple(parts)
        self._make = make
        self._split = split
        self._names = tuple(names)
        self.exact = all(part.exact for part in parts)

    def check(self, key: Any) -> Any:
        """See the base class."""
        try:
            values = self._split(key)
        except (TypeError, AttributeError):
            raise StateTypeError(f"{len(self._parts)} parts", brief(key)) from None
        if len(values) != len(self._parts) or isinstance(key, (str, bytes)):
            raise StateTypeError(f"{len(self._parts)} parts", brief(key))
        for value, part in zip(values, self._parts, strict=True):
            if value is None and not isinstance(part, NullableKeyCodec):
                raise NullValueError("a part of a composite key")
        return self._make(*[p.check(v) for p, v in zip(self._parts, values, strict=True)])

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        values = zip(self._parts, self._split(key), strict=True)
        return b"".join(part.encode(value) for part, value in values)

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        values = []
        for part in self._parts:
            value, start = part.decode(data, start)
            values.append(value)
        return self._make(*values), start

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        for part, value in zip(self._parts, self._split(key), strict=True):
            seed = part.hash(value, seed)
        return seed

    def snapshot(self) -> SerializerSnapshot:
        """See the base class."""
        parts = [attrs_free(part.snapshot()) for part in self._parts]
        return SerializerSnapshot(self.id, payload={"parts": parts, "names": list(self._names)})


class SerializedKeyCodec(KeyCodec):
    """Keys of a custom serializer: its bytes, in the order of those bytes."""

    exact = False

    def __init__(self, serializer: TypeSerializer[Any]) -> None:
        self._serializer = serializer

    def check(self, key: Any) -> Any:
        """See the base class."""
        return self._serializer.check(key)

    def encode(self, key: Any) -> bytes:
        """See the base class."""
        return escape(self._serializer.serialize(key))

    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """See the base class."""
        raw, end = unescape(data, start)
        return self._serializer.deserialize(raw), end

    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """See the base class."""
        return _xxh64(self._serializer.serialize(key), seed)

    def snapshot(self) -> SerializerSnapshot:
        """See the base class."""
        return self._serializer.snapshot()


def attrs_free(snapshot: SerializerSnapshot) -> Any:
    """A snapshot as a plain value, to nest it in another's payload."""
    return snapshot.id if snapshot.payload is None else [snapshot.id, snapshot.payload]


SCALAR_KEYS: dict[type, KeyCodec] = {
    codec.python_type: codec
    for codec in (
        IntKeyCodec(),
        BoolKeyCodec(),
        FloatKeyCodec(),
        StrKeyCodec(),
        BytesKeyCodec(),
        DecimalKeyCodec(),
        DatetimeKeyCodec(),
        DateKeyCodec(),
        UuidKeyCodec(),
    )
}
