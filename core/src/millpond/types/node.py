"""Nodes: how the values of a declared type become plain MessagePack values, and back.

A node checks values when it packs them, so that every stored value can be read back, equal and of
the same type. It also checks when it unpacks, since stored bytes are untrusted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import attrs
import msgspec

from millpond.errors import StateTypeError, brief
from millpond.types.base import TypeSerializer
from millpond.types.scalars import SCALARS

_Ext = msgspec.msgpack.Ext
_CUSTOM = 2
"""MessagePack's extension code of bytes that a plugin's serializer wrote."""


@attrs.frozen
class Node:
    """One part of a declared type.

    Attributes:
        description: the part in the serializer's snapshot, as plain JSON values.
        python_type: the exact type of the values.
        pack: checks a value and converts it to plain MessagePack values; raises StateTypeError.
        unpack: converts back; raises if the plain values are not of this type.
        shapes: the kinds of plain values that ``pack`` returns.
        copy: copies a packable value, sharing nothing mutable; None if values are immutable.
        hashable: whether values may be a dictionary's keys or a set's elements.
        field_names: the fields of a class, which distinguish plain maps in a union.
        sized: whether a value may take many bytes; see ``TypeSerializer.sized``.
        holds: returns whether a value is known to be of the type and immutable in all its parts,
            so that it may be kept as it is; None if only packing can find out.
    """

    description: Any
    python_type: type
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    shapes: frozenset[str]
    copy: Callable[[Any], Any] | None = None
    hashable: bool = True
    field_names: frozenset[str] | None = None
    sized: bool = False
    holds: Callable[[Any], bool] | None = None


SCALAR_NODES: dict[type, Node] = {
    kind: Node(
        scalar.type_name,
        kind,
        scalar.pack,
        scalar.unpack,
        scalar.shapes,
        sized=scalar.sized,
    )
    for kind, scalar in SCALARS.items()
}


def _only_none(value: Any) -> None:
    if value is not None:
        raise StateTypeError("None", brief(value))


NONE_NODE = Node("None", type(None), _only_none, _only_none, frozenset({"nil"}))


def custom_plain(data: bytes) -> Any:
    """Return the bytes of a plugin's serializer as a plain value, a MessagePack extension."""
    return _Ext(_CUSTOM, data)


def is_custom(plain: Any) -> bool:
    """Return whether a plain value was made by ``custom_plain``."""
    return isinstance(plain, _Ext) and plain.code == _CUSTOM


def custom_bytes(plain: Any) -> bytes:
    """Return the bytes in a plain value of ``custom_plain``."""
    if not is_custom(plain):
        raise StateTypeError("the bytes of a plugin's serializer", brief(plain))
    return bytes(plain.data)


def custom_node(kind: type, serializer: TypeSerializer[Any]) -> Node:
    """Return the node of a type that a plugin's serializer stores, as a part of another type.

    Only values that the serializer declares immutable may be a dictionary's keys or a set's
    elements, which are returned without a copy.
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
        sized=serializer.sized,
    )


_MAP_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


def mapping_of(entries: list[tuple[Any, Any]]) -> Any:
    """Return the plain value of a dictionary: a map, or pairs if MessagePack refuses a key."""
    if all(type(key) in _MAP_KEYS for key, _ in entries):
        return dict(entries)
    return [list(entry) for entry in entries]


def entries_of(plain: Any) -> list[tuple[Hashable, Any]]:
    """Return the entries of a dictionary's plain value."""
    if isinstance(plain, dict):
        return list(plain.items())
    if isinstance(plain, list):
        return [(key, item) for key, item in plain]
    raise StateTypeError("dict", brief(plain))
