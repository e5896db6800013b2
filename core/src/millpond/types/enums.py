"""The nodes of enums and flags, and the key codec of enums.

A ``Node`` converts the values of a type to plain MessagePack values and back.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import attrs
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.safe_decoding import is_unicode
from millpond.types.key_codecs import HASH_SEED, KeyCodec
from millpond.types.nodes import Node, NodeError
from millpond.types.number_types import fits_int64, pack_int, unpack_int
from millpond.types.text_types import STR_KEYS


def _is_exact_in_json(value: Any) -> bool:
    """Return whether JSON stores `value` unchanged.

    True for Unicode strings, bools, finite floats and ints of at most 64 bits.
    """
    if type(value) is str:
        return is_unicode(value)
    number = type(value) is float and math.isfinite(value)
    return number or type(value) is bool or fits_int64(value)


def stored_members(declared: type[enum.Enum]) -> dict[str, Any]:
    """Return the stored form of each member, by the member's name.

    The stored form is the member's value if JSON can store the values of all members unchanged.
    Otherwise it is the member's name.
    """
    members = list(declared)
    by_value = all(_is_exact_in_json(member.value) for member in members)
    return {member.name: member.value if by_value else member.name for member in members}


def enum_node(declared: type[enum.Enum]) -> Node:
    """Return the ``Node`` of an enum class, including StrEnum and IntEnum classes."""
    stored = stored_members(declared)
    if not stored:
        raise NodeError("it has no members")
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
    """Return the ``Node`` of a flag class, which stores a combination of members as an int."""

    def pack(value: Any) -> Any:
        if not isinstance(value, declared):
            raise StateTypeError(declared.__name__, brief(value))
        return pack_int(value.value)

    members = {name: member.value for name, member in declared.__members__.items()}
    if not all(map(fits_int64, members.values())):
        raise NodeError("it has more than 63 bits")
    shapes = frozenset({"int", "ext"})
    return Node(
        {"flag": members}, declared, pack, lambda plain: declared(unpack_int(plain)), shapes
    )


ENUM_NAMES = attrs.evolve(STR_KEYS, id="enum")
"""The codec of an enum key's stored name, for tools that do not have the enum class."""


class EnumKeyCodec(KeyCodec):
    """The codec of enum keys, which are stored as the member's name.

    So a job may add members later, and may change their values.
    """

    id = ENUM_NAMES.id
    exact = False
    ordered = False

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
