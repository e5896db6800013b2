"""Key codecs and Arrow columns that are derived from the snapshot of a stored key's codec.

Tools and savepoints use them, because they have no access to the user's classes. Keys here include
namespaces and map keys.
"""

from __future__ import annotations

from typing import Any

import attrs
import pyarrow as pa
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.base import SerializerSnapshot, TypeSerializer
from millpond.types.enums import ENUM_NAMES
from millpond.types.key_codecs import (
    KeyCodec,
    NullableKeyCodec,
    SerializedKeyCodec,
    TupleKeyCodec,
    VoidKeyCodec,
)
from millpond.types.scalar_base import ColumnForm
from millpond.types.scalar_tables import SCALAR_KEYS, SCALARS_BY_NAME
from millpond.types.value_columns import nullable_form

_CODECS_BY_NAME = {codec.id: codec for codec in SCALAR_KEYS.values()}


class _StoredBytes(TypeSerializer[bytes]):
    """A serializer that returns stored bytes unchanged, because the values' class is missing."""

    immutable = True

    def __init__(self, snapshot: SerializerSnapshot) -> None:
        self._snapshot = snapshot

    @override
    def check(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            reason = f"the class of {self._snapshot.id} is not available: give its bytes"
            raise StateTypeError("bytes", brief(value), reason=reason)
        return bytes(value)

    @override
    def serialize(self, value: bytes) -> bytes:
        return value

    @override
    def deserialize(self, data: bytes) -> bytes:
        return data

    @override
    def snapshot(self) -> SerializerSnapshot:
        return self._snapshot


def snapshot_from_nested(nested: Any) -> SerializerSnapshot:
    """Return the snapshot for a plain value that ``nested_form`` has returned."""
    if isinstance(nested, str):
        return SerializerSnapshot(nested)
    name, payload, version = (*nested, 1) if len(nested) == 2 else nested  # noqa: PLR2004
    return SerializerSnapshot(name, version, payload)


def codec_from_snapshot(snapshot: SerializerSnapshot) -> KeyCodec:
    """Return a codec that encodes and hashes keys like the codec that `snapshot` describes.

    The composite keys of the returned codec are plain tuples.
    """
    if snapshot.id in _CODECS_BY_NAME:
        return attrs.evolve(_CODECS_BY_NAME[snapshot.id], column=snapshot.payload)
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
        return TupleKeyCodec(parts, names=snapshot.payload["names"])
    return SerializedKeyCodec(_StoredBytes(snapshot))


def codec_without_class(snapshot: SerializerSnapshot) -> KeyCodec | None:
    """Return the codec that `snapshot` describes, or None if it needs a class of the user."""
    return codec_from_snapshot(snapshot) if _has_no_class(snapshot) else None


def _has_no_class(snapshot: SerializerSnapshot) -> bool:
    if snapshot.id == NullableKeyCodec.id:
        return _has_no_class(snapshot_from_nested(snapshot.payload))
    if snapshot.id == TupleKeyCodec.id:
        parts = map(snapshot_from_nested, snapshot.payload["parts"])
        return not snapshot.payload["names"] and all(map(_has_no_class, parts))
    return snapshot.id in _CODECS_BY_NAME or snapshot.id == VoidKeyCodec.id


def key_column(snapshot: SerializerSnapshot) -> ColumnForm:
    """Return the Arrow column for a key type. The column of a composite key is a struct."""
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
    """Return the struct column for a composite key, given the payload of the key's snapshot."""
    parts = [key_column(snapshot_from_nested(part)) for part in payload["parts"]]
    names = payload["names"] or [f"_{at + 1}" for at in range(len(parts))]

    def to_column(key: Any) -> dict[str, Any]:
        return {n: p.to_column(v) for n, p, v in zip(names, parts, key, strict=True)}

    def from_column(value: Any) -> tuple[Any, ...]:
        return tuple(p.from_column(value[name]) for name, p in zip(names, parts, strict=True))

    fields = [(name, part.arrow_type) for name, part in zip(names, parts, strict=True)]
    return ColumnForm(pa.struct(fields), to_column, from_column)
