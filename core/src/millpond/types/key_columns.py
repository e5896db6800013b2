"""Keys, namespaces and map keys without their classes: codecs and columns from a snapshot."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import xxhash
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.base import SerializerSnapshot
from millpond.types.columns import nullable_form
from millpond.types.enums import ENUM_NAMES
from millpond.types.key_codecs import (
    HASH_SEED,
    KeyCodec,
    NullableKeyCodec,
    TupleKeyCodec,
    VoidKeyCodec,
    escape,
    unescape,
)
from millpond.types.scalar import ColumnForm
from millpond.types.scalars import SCALAR_KEYS, SCALARS_BY_NAME

_CODECS_BY_NAME = {codec.id: codec for codec in SCALAR_KEYS.values()}


class _RawKeyCodec(KeyCodec):
    """Keys of a custom serializer as their bytes, for tools without its class."""

    exact = False

    def __init__(self, snapshot: SerializerSnapshot) -> None:
        self._snapshot = snapshot

    @override
    def check(self, key: Any) -> bytes:
        if not isinstance(key, (bytes, bytearray, memoryview)):
            reason = f"the class of {self._snapshot.id} is not available: give its bytes"
            raise StateTypeError("bytes", brief(key), reason=reason)
        return bytes(key)

    @override
    def encode(self, key: Any) -> bytes:
        return escape(key)

    @override
    def decode(self, data: bytes, start: int) -> tuple[bytes, int]:
        return unescape(data, start)

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return xxhash.xxh64_intdigest(key, seed)

    @override
    def snapshot(self) -> SerializerSnapshot:
        return self._snapshot


def snapshot_from_nested(free: Any) -> SerializerSnapshot:
    """Return the snapshot that ``nested_form`` nested."""
    if isinstance(free, str):
        return SerializerSnapshot(free)
    name, payload, version = (*free, 1) if len(free) == 2 else free  # noqa: PLR2004 - no version
    return SerializerSnapshot(name, version, payload)


def codec_from_snapshot(snapshot: SerializerSnapshot) -> KeyCodec:
    """Return a codec of the same bytes and hashes; composite keys become plain tuples."""
    if snapshot.id in _CODECS_BY_NAME:
        known = _CODECS_BY_NAME[snapshot.id]
        return known if snapshot.payload is None else type(known)(snapshot.payload)
    if snapshot.id == ENUM_NAMES.id:
        return ENUM_NAMES
    if snapshot.id == VoidKeyCodec.id:
        return VoidKeyCodec()
    if snapshot.id == NullableKeyCodec.id:
        return NullableKeyCodec(codec_from_snapshot(snapshot_from_nested(snapshot.payload)))
    if snapshot.id == TupleKeyCodec.id:
        parts = [
            codec_from_snapshot(snapshot_from_nested(part)) for part in snapshot.payload["parts"]
        ]
        names = snapshot.payload["names"]
        optional = [
            n for n, p in zip(names, parts, strict=False) if isinstance(p, NullableKeyCodec)
        ]
        return TupleKeyCodec(parts, names=names, defaults=dict.fromkeys(optional))
    return _RawKeyCodec(snapshot)


def codec_without_class(snapshot: SerializerSnapshot) -> KeyCodec | None:
    """Return the codec of stored keys; None if a class of the user is part of the key."""
    return codec_from_snapshot(snapshot) if _is_plain(snapshot) else None


def _is_plain(snapshot: SerializerSnapshot) -> bool:
    if snapshot.id == NullableKeyCodec.id:
        return _is_plain(snapshot_from_nested(snapshot.payload))
    if snapshot.id == TupleKeyCodec.id:
        parts = map(snapshot_from_nested, snapshot.payload["parts"])
        return not snapshot.payload["names"] and all(map(_is_plain, parts))
    known = snapshot.id in _CODECS_BY_NAME or snapshot.id == VoidKeyCodec.id
    return known and snapshot.id != ENUM_NAMES.snapshot().id


def key_column(snapshot: SerializerSnapshot) -> ColumnForm:
    """Return the column of a key type; a composite key is a struct."""
    if snapshot.id in SCALARS_BY_NAME:
        return SCALARS_BY_NAME[snapshot.id].column
    if snapshot.id == ENUM_NAMES.id:
        return ColumnForm(pa.string())
    if snapshot.id == NullableKeyCodec.id:
        return nullable_form(key_column(snapshot_from_nested(snapshot.payload)))
    if snapshot.id == TupleKeyCodec.id:
        return _struct_column(snapshot.payload)
    return ColumnForm(pa.binary())


def _struct_column(payload: Any) -> ColumnForm:
    parts = [key_column(snapshot_from_nested(part)) for part in payload["parts"]]
    names = payload["names"] or [f"_{at + 1}" for at in range(len(parts))]

    def to_column(key: Any) -> dict[str, Any]:
        return {n: p.to_column(v) for n, p, v in zip(names, parts, key, strict=True)}

    def from_column(value: Any) -> tuple[Any, ...]:
        return tuple(p.from_column(value[name]) for name, p in zip(names, parts, strict=True))

    fields = [(name, part.arrow_type) for name, part in zip(names, parts, strict=True)]
    return ColumnForm(pa.struct(fields), to_column, from_column)
