"""A declared type, taken apart: how its values become plain MessagePack values, and back.

A node checks while it packs, so that nothing gets into state that cannot be read back, equal and
of the same type; and while it unpacks, since what is read may come from anywhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from millpond.errors import StateTypeError, brief
from millpond.types.base import TypeSerializer
from millpond.types.exact_values import (
    EPOCH,
    NAIVE_EPOCH,
    datetime_from_micros,
    decimal_from_text,
    fits_int64,
    int_from_bytes,
    int_to_bytes,
    micros_from_datetime,
    micros_from_time,
    micros_from_timedelta,
    time_from_micros,
    timedelta_from_micros,
)
from millpond.types.scalars import SCALARS
from millpond.types.weights import SMALL, Weight, serializer_weight

_BIG_INT = 1
_CUSTOM = 2
_OFFSET = 1 << 63
_Ext = msgspec.msgpack.Ext


@attrs.frozen
class Node:
    """One part of a declared type.

    Attributes:
        description: the part in the serializer's snapshot, as plain JSON values.
        python_type: what values are exactly, for errors and for the choice within a union.
        pack: from a value to plain MessagePack values; raises StateTypeError where it is not of
            the type.
        unpack: from plain values to a value; raises where they are not of this type.
        shapes: which kinds of plain values there may be.
        copy: of a packable value, sharing nothing mutable; None where values are immutable.
        hashable: whether values may be a dictionary's keys or a set's elements.
        field_names: of a class, by which plain maps are told apart in a union.
        weight: of a packable value, for the write-back buffer.
        holds: whether a value surely is of the type and immutable in all its parts, so that it may
            be kept as it is; None where only packing tells.
    """

    description: Any
    python_type: type
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    shapes: frozenset[str]
    copy: Callable[[Any], Any] | None = None
    hashable: bool = True
    field_names: frozenset[str] | None = None
    weight: Weight = SMALL
    holds: Callable[[Any], bool] | None = None


def pack_int(value: Any) -> Any:
    """An int as MessagePack's, or as an extension beyond 64 bits."""
    if type(value) is int and -_OFFSET <= value < _OFFSET:  # fits_int64, without the call
        return value
    value = SCALARS[int].check(value)
    return value if fits_int64(value) else _Ext(_BIG_INT, int_to_bytes(value))


def unpack_int(value: Any) -> int:
    """The inverse of :func:`pack_int`."""
    if type(value) is int:
        return value
    if isinstance(value, _Ext) and value.code == _BIG_INT:
        return int_from_bytes(bytes(value.data))
    raise StateTypeError("int", brief(value))


def _pack_datetime(value: Any) -> Any:
    value = SCALARS[datetime].check(value)
    micros = micros_from_datetime(value)
    return micros if value.tzinfo is not None else [micros]


def _unpack_datetime(value: Any) -> datetime:
    if isinstance(value, list):
        (micros,) = value
        return NAIVE_EPOCH + (datetime_from_micros(micros) - EPOCH)
    return datetime_from_micros(value)


def _exactly(kind: type) -> Callable[[Any], Any]:
    def unpack(value: Any) -> Any:
        if type(value) is not kind:
            raise StateTypeError(kind.__name__, brief(value))
        return value

    return unpack


def _trusting(kind: type) -> Callable[[Any], Any]:
    """What checks a value, at once where its exact type says everything."""
    check = SCALARS[kind].check
    return lambda value: value if type(value) is kind else check(value)


def _scalar(
    kind: type, shapes: str, unpack: Callable[[Any], Any], pack: Callable[[Any], Any] | None = None
) -> Node:
    serializer = SCALARS[kind]
    found = frozenset(shapes.split())
    return Node(
        serializer.type_name,
        kind,
        pack or serializer.check,
        unpack,
        found,
        weight=serializer_weight(serializer),
    )


def _packed_with(kind: type, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    check = SCALARS[kind].check
    return lambda value: convert(check(value))


SCALAR_NODES: dict[type, Node] = {
    int: _scalar(int, "int ext", unpack_int, pack_int),
    float: _scalar(float, "float", _trusting(float), _trusting(float)),
    bool: _scalar(bool, "bool", _exactly(bool), _trusting(bool)),
    str: _scalar(str, "str", _exactly(str)),
    bytes: _scalar(bytes, "bytes", _exactly(bytes), _trusting(bytes)),
    Decimal: _scalar(Decimal, "str", decimal_from_text, _packed_with(Decimal, str)),
    datetime: _scalar(datetime, "int list", _unpack_datetime, _pack_datetime),
    date: _scalar(date, "int", date.fromordinal, _packed_with(date, date.toordinal)),
    timedelta: _scalar(
        timedelta,
        "int ext",
        lambda plain: timedelta_from_micros(unpack_int(plain)),
        lambda value: pack_int(micros_from_timedelta(SCALARS[timedelta].check(value))),
    ),
    time: _scalar(
        time,
        "int",
        lambda plain: time_from_micros(unpack_int(plain)),
        _packed_with(time, micros_from_time),
    ),
    uuid.UUID: _scalar(
        uuid.UUID,
        "bytes",
        lambda data: uuid.UUID(bytes=data),
        _packed_with(uuid.UUID, lambda value: value.bytes),
    ),
}


def _only_none(value: Any) -> None:
    if value is not None:
        raise StateTypeError("None", brief(value))


NONE_NODE = Node("None", type(None), _only_none, _only_none, frozenset({"nil"}))


def custom_plain(data: bytes) -> Any:
    """Bytes of a plugin's serializer as a plain value, an extension of MessagePack's."""
    return _Ext(_CUSTOM, data)


def is_custom(plain: Any) -> bool:
    """Whether a plain value is what ``custom_plain`` gives."""
    return isinstance(plain, _Ext) and plain.code == _CUSTOM


def custom_bytes(plain: Any) -> bytes:
    """The inverse of ``custom_plain``."""
    if not is_custom(plain):
        raise StateTypeError("the bytes of a plugin's serializer", brief(plain))
    return bytes(plain.data)


def custom_node(kind: type, serializer: TypeSerializer[Any]) -> Node:
    """A type that a plugin's serializer stores, as a part of another type.

    Only values that the serializer declares immutable may be a dictionary's keys or a set's
    elements, which are handed out without a copy.
    """
    check, serialize, deserialize = serializer.check, serializer.serialize, serializer.deserialize
    stored = serializer.snapshot()
    return Node(
        {"custom": [stored.id, stored.version, stored.payload]},
        kind,
        lambda value: custom_plain(serialize(check(value))),
        lambda plain: deserialize(custom_bytes(plain)),
        frozenset({"custom"}),
        None if serializer.immutable else serializer.copy,
        hashable=serializer.immutable and kind.__hash__ is not None,
        weight=serializer_weight(serializer),
    )


_MAP_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


def mapping_of(entries: list[tuple[Any, Any]]) -> Any:
    """The plain value of a dictionary: a map, or a list of pairs where a key cannot be a map's."""
    if all(type(key) in _MAP_KEYS for key, _ in entries):
        return dict(entries)
    return [list(entry) for entry in entries]


def entries_of(plain: Any) -> list[tuple[Hashable, Any]]:
    """Key and item of each entry of a dictionary's plain value."""
    if isinstance(plain, dict):
        return list(plain.items())
    if isinstance(plain, list):
        return [(key, item) for key, item in plain]
    raise StateTypeError("dict", brief(plain))
