"""Enums and flags: their nodes, and the key codec of enums."""

from __future__ import annotations

import enum
import math
import unicodedata
from typing import Any

from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.classes import ClassError
from millpond.types.key_codecs import HASH_SEED, KeyCodec
from millpond.types.node import Node
from millpond.types.number_types import fits_int64, pack_int, unpack_int
from millpond.types.text_types import StrKeyCodec


def _is_plain(value: Any) -> bool:
    if type(value) is str:
        return not any(unicodedata.category(letter) == "Cs" for letter in value)
    number = type(value) is float and math.isfinite(value)
    return number or type(value) is bool or fits_int64(value)


def stored_members(declared: type[enum.Enum]) -> dict[str, Any]:
    """Return the stored form of each member by name: its value, or its name if any is odd.

    Plain are the values that metadata hold exactly: strings, bools, finite floats, 64-bit ints.
    """
    members = list(declared)
    if all(_is_plain(member.value) for member in members):
        return {member.name: member.value for member in members}
    return {member.name: member.name for member in members}


def enum_node(declared: type[enum.Enum]) -> Node:
    """Return the node of an enum, which may also be a str, int or float."""
    stored = stored_members(declared)
    if not stored:
        raise ClassError("it has no members")
    members = {plain: declared[name] for name, plain in stored.items()}

    def pack(value: Any) -> Any:
        if not isinstance(value, declared):
            raise StateTypeError(declared.__name__, brief(value))
        return stored[value.name]

    def unpack(plain: Any) -> Any:
        if plain not in members:
            raise StateTypeError(declared.__name__, brief(plain))
        return members[plain]

    shapes = frozenset(type(plain).__name__ for plain in stored.values())
    hashable = declared.__hash__ is not None
    return Node({"enum": stored}, declared, pack, unpack, shapes, hashable=hashable)


def flag_node(declared: type[enum.Flag]) -> Node:
    """Return the node of a flag: any combination of its members, as bits."""

    def pack(value: Any) -> Any:
        if not isinstance(value, declared):
            raise StateTypeError(declared.__name__, brief(value))
        return pack_int(value.value)

    members = {name: member.value for name, member in declared.__members__.items()}
    if not all(map(fits_int64, members.values())):
        raise ClassError("it has more than 63 bits")
    shapes = frozenset({"int", "ext"})
    return Node(
        {"flag": members}, declared, pack, lambda plain: declared(unpack_int(plain)), shapes
    )


class _EnumNameCodec(StrKeyCodec):
    """The names of an enum's members, for tools that do not have the class."""

    def __init__(self) -> None:
        super().__init__()
        self.id = EnumKeyCodec.id


class EnumKeyCodec(KeyCodec):
    """An enum by the names of its members, so members can be added and get other values."""

    id = "enum"
    exact = False

    def __init__(self, declared: type[enum.Enum]) -> None:
        self._declared = declared

    @override
    def check(self, key: Any) -> Any:
        if not isinstance(key, self._declared):
            raise StateTypeError(self._declared.__name__, brief(key))
        return key

    @override
    def encode(self, key: Any) -> bytes:
        return ENUM_NAMES.encode(key.name)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        name, end = ENUM_NAMES.decode(data, start)
        if name not in self._declared.__members__:
            raise StateTypeError(self._declared.__name__, brief(name), reason="it has no such name")
        return self._declared[name], end

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return ENUM_NAMES.hash(key.name, seed)


ENUM_NAMES = _EnumNameCodec()
