"""Keys, namespaces and map keys as typed columns, from the snapshot of their codec alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import xxhash
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.base import SerializerSnapshot
from millpond.types.enum_keys import ENUM_NAMES
from millpond.types.exact_values import (
    datetime_from_micros,
    micros_from_datetime,
    micros_from_timedelta,
    time_from_text,
    timedelta_from_micros,
)
from millpond.types.keys import (
    HASH_SEED,
    KeyCodec,
    NullableKeyCodec,
    TupleKeyCodec,
    VoidKeyCodec,
    escape,
    unescape,
)
from millpond.types.plain_keys import SCALAR_KEYS

_CODECS = {codec.id: codec for codec in SCALAR_KEYS.values()}


@attrs.frozen
class KeyColumn:
    """How keys look in a table: Arrow's type, and both directions."""

    arrow_type: pa.DataType
    out: Callable[[Any], Any]
    back: Callable[[Any], Any]


class _RawKeyCodec(KeyCodec):
    """Keys of a custom serializer, whose class is not at hand, as their bytes."""

    exact = False

    def __init__(self, snapshot: SerializerSnapshot) -> None:
        self._snapshot = snapshot

    @override
    def check(self, key: Any) -> bytes:
        if not isinstance(key, (bytes, bytearray, memoryview)):
            reason = f"the class of {self._snapshot.id} is not at hand: give its bytes"
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


def nested_snapshot(free: Any) -> SerializerSnapshot:
    """A snapshot as ``attrs_free`` has nested it."""
    if isinstance(free, str):
        return SerializerSnapshot(free)
    name, payload, version = (*free, 1) if len(free) == 2 else free  # noqa: PLR2004 - no version
    return SerializerSnapshot(name, version, payload)


def codec_from_snapshot(snapshot: SerializerSnapshot) -> KeyCodec:
    """A codec of the same bytes and hashes; composite keys become plain tuples."""
    if snapshot.id in _CODECS:
        known = _CODECS[snapshot.id]
        return known if snapshot.payload is None else type(known)(snapshot.payload)
    if snapshot.id == ENUM_NAMES.id:
        return ENUM_NAMES
    if snapshot.id == VoidKeyCodec.id:
        return VoidKeyCodec()
    if snapshot.id == NullableKeyCodec.id:
        return NullableKeyCodec(codec_from_snapshot(nested_snapshot(snapshot.payload)))
    if snapshot.id == TupleKeyCodec.id:
        parts = [codec_from_snapshot(nested_snapshot(part)) for part in snapshot.payload["parts"]]
        names = snapshot.payload["names"]
        optional = [
            n for n, p in zip(names, parts, strict=False) if isinstance(p, NullableKeyCodec)
        ]
        return TupleKeyCodec(parts, names=names, defaults=dict.fromkeys(optional))
    return _RawKeyCodec(snapshot)


def codec_without_class(snapshot: SerializerSnapshot) -> KeyCodec | None:
    """The codec of stored keys; None where they, or parts of them, are of a class of the user's."""
    return codec_from_snapshot(snapshot) if _is_plain(snapshot) else None


def _is_plain(snapshot: SerializerSnapshot) -> bool:
    if snapshot.id == NullableKeyCodec.id:
        return _is_plain(nested_snapshot(snapshot.payload))
    if snapshot.id == TupleKeyCodec.id:
        parts = map(nested_snapshot, snapshot.payload["parts"])
        return not snapshot.payload["names"] and all(map(_is_plain, parts))
    known = snapshot.id in _CODECS or snapshot.id == VoidKeyCodec.id
    return known and snapshot.id != ENUM_NAMES.snapshot().id


def _same(value: Any) -> Any:
    return value


def _utc(value: datetime) -> datetime:
    return datetime_from_micros(micros_from_datetime(value))


_COLUMNS = {
    "int": KeyColumn(pa.int64(), _same, _same),
    "float": KeyColumn(pa.float64(), _same, _same),
    "bool": KeyColumn(pa.bool_(), _same, _same),
    "str": KeyColumn(pa.string(), _same, _same),
    "enum": KeyColumn(pa.string(), _same, _same),
    "bytes": KeyColumn(pa.binary(), _same, _same),
    "date": KeyColumn(pa.date32(), _same, _same),
    "datetime": KeyColumn(pa.timestamp("us", "UTC"), _utc, _same),
    "timedelta": KeyColumn(pa.int64(), micros_from_timedelta, timedelta_from_micros),
    "time": KeyColumn(pa.string(), time.isoformat, time_from_text),
    "Decimal": KeyColumn(pa.string(), str, Decimal),
    "UUID": KeyColumn(pa.string(), str, uuid.UUID),
}
"""The columns of types without parts."""


def key_column(snapshot: SerializerSnapshot) -> KeyColumn:
    """The column of a key type; a composite key is a struct."""
    if snapshot.id in _COLUMNS:
        return _COLUMNS[snapshot.id]
    if snapshot.id == NullableKeyCodec.id:
        inner = key_column(nested_snapshot(snapshot.payload))
        return KeyColumn(
            inner.arrow_type,
            lambda value: None if value is None else inner.out(value),
            lambda value: None if value is None else inner.back(value),
        )
    if snapshot.id == TupleKeyCodec.id:
        return _struct_column(snapshot.payload)
    return KeyColumn(pa.binary(), _same, _same)


def _struct_column(payload: Any) -> KeyColumn:
    parts = [key_column(nested_snapshot(part)) for part in payload["parts"]]
    names = payload["names"] or [f"_{at + 1}" for at in range(len(parts))]

    def out(key: Any) -> dict[str, Any]:
        return {n: p.out(v) for n, p, v in zip(names, parts, key, strict=True)}

    def back(value: Any) -> tuple[Any, ...]:
        return tuple(part.back(value[name]) for name, part in zip(names, parts, strict=True))

    fields = [(name, part.arrow_type) for name, part in zip(names, parts, strict=True)]
    return KeyColumn(pa.struct(fields), out, back)
