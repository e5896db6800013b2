"""Texts and bytes: str, bytes and UUID, with all their conversions."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from typing_extensions import override

from millpond.types.key_codecs import escape, unescape
from millpond.types.scalar import (
    ColumnForm,
    ScalarKeyCodec,
    ScalarSerializer,
    exactly,
    type_error,
    unpack_exactly,
)


def _check_str(value: Any) -> str:
    text: str = value if type(value) is str else exactly(str, value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise type_error("str", value, str(error)) from None
    return text


def _check_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    return bytes(value if isinstance(value, (bytearray, memoryview)) else exactly(bytes, value))


def _check_uuid(value: Any) -> uuid.UUID:
    made: uuid.UUID = exactly(uuid.UUID, value)
    return made


STR = ScalarSerializer(
    "str",
    str,
    _check_str,
    str.encode,
    bytes.decode,
    ColumnForm(pa.string()),
    unpack=unpack_exactly(str),
    trusted=False,  # it may have half of a surrogate pair
    sized=True,
)

BYTES = ScalarSerializer(
    "bytes",
    bytes,
    _check_bytes,
    bytes,
    bytes,
    ColumnForm(pa.binary()),
    sized=True,
)

UUID = ScalarSerializer(
    "UUID",
    uuid.UUID,
    _check_uuid,
    lambda value: value.bytes,
    lambda data: uuid.UUID(bytes=data),
    ColumnForm(pa.string(), str, uuid.UUID),
    lambda value: _check_uuid(value).bytes,
    lambda data: uuid.UUID(bytes=data),
    frozenset({"bytes"}),
)


class StrKeyCodec(ScalarKeyCodec):
    """``str`` as UTF-8."""

    serializer = STR
    hashed = staticmethod(str.encode)
    canonical = str

    @override
    def encode(self, key: Any) -> bytes:
        return escape(key.encode())

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        raw, end = unescape(data, start)
        return raw.decode(), end


class BytesKeyCodec(ScalarKeyCodec):
    """``bytes`` as they are."""

    serializer = BYTES
    hashed = staticmethod(bytes)
    canonical = bytes

    @override
    def encode(self, key: Any) -> bytes:
        return escape(key)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return unescape(data, start)


class UuidKeyCodec(ScalarKeyCodec):
    """``UUID`` as 16 bytes; hashed as its string, since Spark has no such type."""

    serializer = UUID
    hashed = staticmethod(lambda key: str(key).encode())

    @override
    def encode(self, key: Any) -> bytes:
        return bytes(key.bytes)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return uuid.UUID(bytes=data[start : start + 16]), start + 16


TEXT_KEYS = (StrKeyCodec(), BytesKeyCodec(), UuidKeyCodec())
