"""Nodes of enums and flags."""

from __future__ import annotations

import enum
import math
import unicodedata
from typing import Any

from millpond.errors import StateTypeError, brief
from millpond.types.classes import ClassError
from millpond.types.exact_values import fits_int64
from millpond.types.node import Node, pack_int, unpack_int


def _is_plain(value: Any) -> bool:
    if type(value) is str:
        return not any(unicodedata.category(letter) == "Cs" for letter in value)
    number = type(value) is float and math.isfinite(value)
    return number or type(value) is bool or fits_int64(value)


def stored_members(declared: type[enum.Enum]) -> dict[str, Any]:
    """By name, how each member is stored: by its value, or where some value is not plain, by name.

    Plain are the values that metadata hold exactly: texts, bools, finite floats, ints of 64 bits.
    """
    members = list(declared)
    if all(_is_plain(member.value) for member in members):
        return {member.name: member.value for member in members}
    return {member.name: member.name for member in members}


def enum_node(declared: type[enum.Enum]) -> Node:
    """An enum, also one that is a str, int or float as well."""
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
    """A flag: any combination of its members, as bits."""

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
