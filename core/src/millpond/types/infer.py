"""From a declared Python type to its serializer or key codec."""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeGuard, Union, get_args, get_origin

from millpond.errors import ConfigError, NullValueError, StateTypeError, brief
from millpond.keygroups import check_parallelism
from millpond.types.base import FindSerializer, TypeSerializer, no_serializer
from millpond.types.classes import ClassError, field_defaults, is_frozen, positional_maker
from millpond.types.describe import MAX_NESTING, TOO_DEEP, is_struct, spelled, typed_fields
from millpond.types.enum_keys import EnumKeyCodec
from millpond.types.foreign_scalars import python_scalar
from millpond.types.keys import (
    VOID_NAMESPACE,
    DeclaredKeyType,
    KeyCodec,
    NullableKeyCodec,
    SerializedKeyCodec,
    TupleKeyCodec,
    VoidKeyCodec,
    VoidNamespace,
)
from millpond.types.plain_keys import SCALAR_KEYS
from millpond.types.row_types import as_declared
from millpond.types.rows import Row, row_fault, row_names, row_type
from millpond.types.scalars import SCALARS
from millpond.types.structured import StructuredSerializer

_PLAIN_KEYS: dict[type, KeyCodec] = {VoidNamespace: VoidKeyCodec(), **SCALAR_KEYS}


def serializer_for(declared: object, find: FindSerializer = no_serializer) -> TypeSerializer[Any]:
    """The serializer of a declared type, or the given TypeSerializer itself.

    Args:
        declared: the type.
        find: looks up the serializers that the job's plugins provide.

    Raises:
        ConfigError: the type cannot be stored.
    """
    if isinstance(declared, TypeSerializer):
        return declared
    declared = as_declared(declared)
    if isinstance(declared, type) and declared in SCALARS:
        return SCALARS[declared]
    custom = find(declared) if isinstance(declared, type) else None
    return StructuredSerializer(declared, find) if custom is None else custom


class _Noted:
    """A search that remembers whether a plugin's serializer was found."""

    def __init__(self, find: FindSerializer) -> None:
        self._find = find
        self.found = False

    def __call__(self, part: type) -> TypeSerializer[Any] | None:
        serializer = self._find(part)
        self.found = self.found or serializer is not None
        return serializer


def custom_serializer(declared: object, find: FindSerializer) -> TypeSerializer[Any] | None:
    """The serializer of a type that is, or contains, a plugin's; None if it contains none.

    Raises:
        ConfigError: the type cannot be stored.
    """
    if isinstance(declared, TypeSerializer):
        return None
    noted = _Noted(find)
    serializer = serializer_for(declared, noted)
    return serializer if noted.found else None


def custom_codec(declared: object, find: FindSerializer) -> KeyCodec | None:
    """The codec of a key type that is, or contains, a plugin's; None if it contains none."""
    noted = _Noted(find)
    codec = key_codec_for(declared, noted)
    return codec if noted.found else None


def key_codec_for(declared: object, find: FindSerializer = no_serializer) -> KeyCodec:
    """The codec of a key, namespace or map-key type.

    Args:
        declared: the type.
        find: looks up the serializers that the job's plugins provide.

    Raises:
        ConfigError: the type cannot be a key: it is mutable, or has no fixed meaning.
    """
    return _codec(_declared_key(declared), find, 0)


def _declared_key(declared: object) -> object:
    """A key as Python declares it, where it was given as DDL or as a type of Spark's.

    One column is a key of its type, several are a row of them; none of them is null.
    """
    given = as_declared(declared)
    names = getattr(given, "_fields", None)
    if given is declared or names is None:
        return given
    kinds = [_without_none(given.__annotations__[name]) for name in names]
    if len(kinds) == 1:
        return kinds[0]
    return row_key_codec([_codec(kind, no_serializer, 1) for kind in kinds], names)


def row_key_codec(parts: Sequence[KeyCodec], names: Sequence[str]) -> TupleKeyCodec:
    """The codec of keys that are rows of some columns; each may be given as a plain tuple."""
    kind = row_type(names)

    def split(key: Any) -> Any:
        # Row classes are kept in a cache, so that of equal columns there may be another one.
        given = type(key)
        if given is kind or given is tuple:
            return key
        if not isinstance(key, tuple) or row_names(key) not in (None, kind._fields):
            reason = row_fault(key, kind._fields)
            raise StateTypeError(f"a row of {', '.join(names)}", brief(key), reason=reason)
        return key

    return TupleKeyCodec(parts, kind, split, names)


def _without_none(declared: Any) -> Any:
    if get_origin(declared) not in (Union, types.UnionType):
        return declared
    (kind,) = (part for part in get_args(declared) if part is not type(None))
    return kind


def _codec(declared: object, find: FindSerializer, depth: int) -> KeyCodec:
    if isinstance(declared, KeyCodec):
        return declared
    if isinstance(declared, TypeSerializer):
        return SerializedKeyCodec(declared)
    if isinstance(declared, type) and declared in _PLAIN_KEYS:
        return _PLAIN_KEYS[declared]
    if depth >= MAX_NESTING:
        raise ConfigError(spelled(declared), TOO_DEEP, place="key type")
    composite = _composite_codec(declared, find, depth + 1)
    if composite is not None:
        return composite
    custom = find(declared) if isinstance(declared, type) else None
    if custom is not None:
        return SerializedKeyCodec(custom)
    if _is_enum(declared):
        return EnumKeyCodec(declared)
    raise ConfigError(
        spelled(declared),
        "this type cannot be a key or namespace; use a scalar, an enum, tuple[...], a frozen attrs "
        "class or dataclass, or give a TypeSerializer",
        place="key type",
    )


def _is_enum(declared: object) -> TypeGuard[type[enum.Enum]]:
    """Whether each value has a name: combinations of flags have none."""
    is_class = isinstance(declared, type) and issubclass(declared, enum.Enum)
    return is_class and not issubclass(declared, enum.Flag)  # type: ignore[arg-type]


def _composite_codec(declared: object, find: FindSerializer, depth: int) -> TupleKeyCodec | None:
    if get_origin(declared) is tuple and get_args(declared) and ... not in get_args(declared):
        return TupleKeyCodec([_part_codec(part, find, depth) for part in get_args(declared)])
    if not isinstance(declared, type):
        return None
    if issubclass(declared, tuple) and hasattr(declared, "_fields"):
        fields = _fields(declared)
        names = list(fields)
        if not names:
            raise ConfigError(str(declared), "a key tuple must have fields", place="key type")
        parts = [_part_codec(kind, find, depth) for kind in fields.values()]
        # Of a class without slots, objects take attributes, which are no part of a key: so none is
        # kept that has been handed out.
        exact = declared.__eq__ is tuple.__eq__ and not declared.__dictoffset__
        defaults: Any = getattr(declared, "_field_defaults", {})
        return TupleKeyCodec(parts, declared, names=names, exact=exact, defaults=defaults)
    if is_struct(declared):
        return _struct_codec(declared, find, depth)
    return None


def _fields(declared: type) -> dict[str, Any]:
    try:
        return typed_fields(declared)
    except ClassError as error:
        raise ConfigError(str(declared), str(error), place="key type") from None


def _struct_codec(declared: type, find: FindSerializer, depth: int) -> TupleKeyCodec:
    fields = _fields(declared)
    names = list(fields)
    try:
        usable = names and is_frozen(declared) and declared.__hash__ is not None
        make = positional_maker(declared, names)
    except ClassError as error:
        raise ConfigError(str(declared), str(error), place="key type") from None
    if not usable:
        reason = "a key class must be frozen, hashable, and have fields"
        raise ConfigError(str(declared), reason, place="key type")
    getter = attrgetter(*names)

    def split(value: Any) -> Any:
        if type(value) is not declared:
            raise StateTypeError(declared.__name__, brief(value))
        return getter(value) if len(names) > 1 else (getter(value),)

    # A class defines its own equality: it may leave out fields, and NaN is unequal to itself.
    parts = [_part_codec(kind, find, depth) for kind in fields.values()]
    return TupleKeyCodec(parts, make, split, names, exact=False, defaults=field_defaults(declared))


def _part_codec(declared: object, find: FindSerializer, depth: int) -> KeyCodec:
    if get_origin(declared) in (Union, types.UnionType):
        parts = [part for part in get_args(declared) if part is not type(None)]
        if len(parts) == 1:
            return NullableKeyCodec(_codec(parts[0], find, depth))
    return _codec(declared, find, depth)


def infer_key_type(key: object) -> DeclaredKeyType[Any]:
    """The type of a plain key or namespace for which no type was declared.

    Raises:
        NullValueError: the key is None.
        ConfigError: the type cannot be a key.
    """
    try:
        key = python_scalar(key)
    except ValueError as error:
        raise StateTypeError("a key", brief(key), reason=str(error)) from None
    if key is None:
        raise NullValueError("a key")
    if key is VOID_NAMESPACE:
        return VoidNamespace
    if isinstance(key, Row):
        return row_key_codec([key_codec_for(infer_key_type(part)) for part in key], key._fields)
    if type(key) is tuple:
        declared: Any = tuple[tuple(infer_key_type(part) for part in key)]  # type: ignore[misc]
        return declared
    return type(key)


def assign_to_key_group(
    key: object,
    max_parallelism: int,
    key_type: DeclaredKeyType[Any] | None = None,
    find: FindSerializer = no_serializer,
) -> int:
    """The key group of a key: ``pmod(xxhash64(key), max_parallelism)``, as Spark computes it.

    Args:
        key: the key; a Python ``int`` is a ``bigint``.
        max_parallelism: the number of key groups.
        key_type: the declared type; None infers it from the key.
        find: looks up the serializers that the job's plugins provide.

    Raises:
        KeyGroupRangeError: ``max_parallelism`` is out of range.
        NullValueError: the key is None.
        StateTypeError: the key does not fit the type.
    """
    check_parallelism(max_parallelism)
    if key is None:
        raise NullValueError("a key")
    codec = key_codec_for(infer_key_type(key) if key_type is None else key_type, find)
    return codec.placed(key, max_parallelism)[1]
