"""Texts and bytes: str, bytes and UUID, with all their conversions."""

from __future__ import annotations

import operator
import uuid
from itertools import repeat
from typing import Any

import pyarrow as pa
import xxhash
from typing_extensions import override

from millpond.types.keys import HASH_SEED, escape, unescape
from millpond.types.scalar import (
    ColumnForm,
    ScalarKeyCodec,
    ScalarSerializer,
    exactly,
    type_error,
    unpack_exactly,
)

_xxh64 = xxhash.xxh64_intdigest


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
    _check_str,
    unpack_exactly(str),
    frozenset({"str"}),
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
    _check_bytes,
    unpack_exactly(bytes),
    frozenset({"bytes"}),
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

    @override
    def encode(self, key: Any) -> bytes:
        return escape(key.encode())

    @override
    def encode_many(self, keys: list[Any]) -> list[bytes]:
        if "\0" in "".join(keys):
            return super().encode_many(keys)
        return list(map(operator.add, map(str.encode, keys), repeat(b"\0\0")))

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        raw, end = unescape(data, start)
        return raw.decode(), end

    @override
    def decode_last(self, data: list[bytes], start: int) -> list[Any]:
        # Without zero bytes, this takes a third of the time of a call for each key.
        ends = {each[-2:] for each in data}
        texts = [each[start:-2] for each in data]
        if ends != {b"\0\0"} or b"\0" in b"".join(texts):
            return super().decode_last(data, start)
        return list(map(bytes.decode, texts))

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(key.encode(), seed)


class BytesKeyCodec(ScalarKeyCodec):
    """``bytes`` as they are."""

    serializer = BYTES

    @override
    def encode(self, key: Any) -> bytes:
        return escape(key)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return unescape(data, start)

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(key, seed)


class UuidKeyCodec(ScalarKeyCodec):
    """``UUID`` as 16 bytes; hashed as its string, since Spark has no such type."""

    serializer = UUID

    @override
    def encode(self, key: Any) -> bytes:
        return bytes(key.bytes)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return uuid.UUID(bytes=data[start : start + 16]), start + 16

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(str(key).encode(), seed)
