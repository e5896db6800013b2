"""The nodes and key codecs of enums, flags and literals.

A ``Node`` converts the values of a type to plain MessagePack values and back.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Container, Sequence
from typing import Any

import attrs
from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.safe_decoding import is_unicode
from millpond.types.key_codecs import HASH_SEED, KeyCodec
from millpond.types.nodes import Node, NodeError
from millpond.types.number_types import fits_int64, pack_int, unpack_int
from millpond.types.scalar_base import ScalarKeyCodec
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


def literal_node(values: Sequence[Any], base: Node) -> Node:
    """Return the ``Node`` of a ``Literal``.

    Args:
        values: the values of the literal, which all have the same type.
        base: the node of this type.

    Raises:
        NodeError: JSON cannot store a value.
    """
    stored = [base.pack(value) for value in values]
    if any(type(plain) is not bytes and not _is_exact_in_json(plain) for plain in stored):
        raise NodeError("one of its values is no Unicode text or has more than 64 bits")
    expected = f"one of {', '.join(map(repr, values))}"
    members = frozenset(stored)

    def pack(value: Any) -> Any:
        plain = base.pack(value)
        if plain not in members:
            raise StateTypeError(expected, brief(value))
        return plain

    def unpack(plain: Any) -> Any:
        value = base.unpack(plain)
        if plain not in members:
            raise StateTypeError(expected, brief(value))
        return value

    described = [literal_text(plain) for plain in stored]
    return attrs.evolve(
        base, description={"literal": [base.description, described]}, pack=pack, unpack=unpack
    )


def literal_text(plain: Any) -> Any:
    """Return the packed value of a literal as a value for JSON, in which bytes are text."""
    return plain.decode("latin-1") if type(plain) is bytes else plain


def literal_codec(values: Sequence[Any], base: ScalarKeyCodec) -> KeyCodec:
    """Return the codec of keys that are values of a ``Literal``, given the codec of their type."""

    def check(key: Any) -> Any:
        checked = base.check(key)
        if checked not in values:
            raise StateTypeError(f"one of {', '.join(map(repr, values))}", brief(key))
        return checked

    def decode(data: bytes, start: int) -> tuple[Any, int]:
        key, end = base.decode(data, start)
        return check(key), end

    return attrs.evolve(base, check=check, decode=decode, canonical=None, exact=False)


ENUM_NAMES = attrs.evolve(STR_KEYS, id="enum")
"""The codec of an enum key's stored name, for tools that do not have the enum class."""


class EnumKeyCodec(KeyCodec):
    """The codec of enum keys, which are stored as the member's name.

    So a job may add members later, and may change their values.
    """

    id = ENUM_NAMES.id
    exact = False
    ordered = False

    def __init__(self, declared: type[enum.Enum], members: Sequence[enum.Enum] = ()) -> None:
        """Create the codec of an enum, or of a ``Literal`` if `members` has its values."""
        self._declared = declared
        self._members = frozenset(members)
        self._names: Container[str] = {member.name for member in members} or declared.__members__

    @override
    def check(self, key: Any) -> Any:
        if not isinstance(key, self._declared) or (self._members and key not in self._members):
            raise StateTypeError(self._declared.__name__, brief(key))
        return key

    @override
    def encode(self, key: Any) -> bytes:
        return ENUM_NAMES.encode(key.name)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        name, end = ENUM_NAMES.decode(data, start)
        if name not in self._names:
            raise StateTypeError(self._declared.__name__, brief(name), reason="it has no such name")
        return self._declared[name], end

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return ENUM_NAMES.hash(key.name, seed)
