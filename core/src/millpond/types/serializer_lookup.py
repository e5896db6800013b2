"""Functions that find the serializer or key codec of a declared Python type."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, get_args, get_origin

from millpond.errors import ConfigError, NullValueError, StateTypeError, brief, shown
from millpond.keygroups import check_parallelism
from millpond.types.base import FindSerializer, TypeSerializer, no_serializer
from millpond.types.class_fields import is_frozen, is_struct, typed_fields
from millpond.types.classes import positional_maker
from millpond.types.declared_types import is_literal, is_union, plain_type
from millpond.types.enums import EnumKeyCodec, literal_codec
from millpond.types.foreign_scalars import python_scalar
from millpond.types.key_codecs import (
    VOID_NAMESPACE,
    DeclaredKeyType,
    KeyCodec,
    NullableKeyCodec,
    SerializedKeyCodec,
    TupleKeyCodec,
    VoidKeyCodec,
    VoidNamespace,
)
from millpond.types.node_compiler import MAX_NESTING, TOO_DEEP
from millpond.types.nodes import NodeError
from millpond.types.rows import Row, as_declared, row_fault, row_names, row_type
from millpond.types.scalar_tables import SCALAR_KEYS, SCALARS
from millpond.types.structured import StructuredSerializer

_PLAIN_KEYS: dict[type, KeyCodec] = {VoidNamespace: VoidKeyCodec(), **SCALAR_KEYS}


def serializer_for(declared: object, find: FindSerializer = no_serializer) -> TypeSerializer[Any]:
    """Return the serializer of a declared type.

    If `declared` is a TypeSerializer, return `declared` itself.

    Args:
        declared: the type.
        find: a function that returns a plugin's serializer for a type.

    Raises:
        ConfigError: the type cannot be stored.
    """
    if isinstance(declared, TypeSerializer):
        return declared
    declared = plain_type(as_declared(declared))
    if isinstance(declared, type) and declared in SCALARS:
        return SCALARS[declared]
    custom = find(declared) if isinstance(declared, type) else None
    return StructuredSerializer(declared, find) if custom is None else custom


def key_codec_for(declared: object, find: FindSerializer = no_serializer) -> KeyCodec:
    """Return the codec of the type of a key, namespace or map key.

    Args:
        declared: the type.
        find: a function that returns a plugin's serializer for a type.

    Raises:
        ConfigError: the type cannot be a key type, because it is mutable or has no stable bytes.
    """
    given = as_declared(declared)
    names = getattr(given, "_fields", None)
    if given is declared or names is None:
        return _codec(given, find, ())
    # The type was declared as columns, in DDL or as a StructType. If there is only one column, the
    # key is the value of the column. Parts of a key cannot be null, even if a column is nullable.
    kinds = [_without_none(given.__annotations__[name]) for name in names]
    if len(kinds) == 1:
        return _codec(kinds[0], find, ())
    return row_key_codec(
        [
            _codec(kind, no_serializer, (f".{name}",))
            for name, kind in zip(names, kinds, strict=True)
        ],
        names,
    )


def row_key_codec(parts: Sequence[KeyCodec], names: Sequence[str]) -> TupleKeyCodec:
    """Return the codec of keys that are rows with these column names.

    The codec also accepts plain tuples.

    Args:
        parts: the codec of each column.
        names: the name of each column.
    """
    kind = row_type(names)

    def split(key: Any) -> Any:
        # Row types are cached, so another type may have the same columns.
        given = type(key)
        if given is kind or given is tuple:
            return key
        if not isinstance(key, tuple) or row_names(key) not in (None, kind._fields):
            reason = row_fault(key, kind._fields)
            raise StateTypeError(f"a row of {', '.join(names)}", brief(key), reason=reason)
        return key

    return TupleKeyCodec(parts, kind, split, names)


def _without_none(declared: Any) -> Any:
    """Return X for ``X | None``, and any other type without aliases."""
    declared = plain_type(declared)
    if not is_union(declared):
        return declared
    kinds = [part for part in get_args(declared) if part is not type(None)]
    return kinds[0] if len(kinds) == 1 else declared


def _codec(declared: Any, find: FindSerializer, path: tuple[str, ...]) -> KeyCodec:
    """Return the codec of a type, which is nested at `path` in a key type."""
    declared = plain_type(declared)
    if isinstance(declared, KeyCodec):
        return declared
    if isinstance(declared, TypeSerializer):
        return SerializedKeyCodec(declared)
    if isinstance(declared, type) and declared in _PLAIN_KEYS:
        return _PLAIN_KEYS[declared]
    if len(path) >= MAX_NESTING:
        raise ConfigError(shown(declared), TOO_DEEP, place="key type")
    composite = _composite_codec(declared, find, path)
    if composite is not None:
        return composite
    custom = find(declared) if isinstance(declared, type) else None
    if custom is not None:
        return SerializedKeyCodec(custom)
    named = _named_codec(declared)
    if named is not None:
        return named
    raise ConfigError(
        shown(declared),
        "this type cannot be a key or namespace; use a scalar, an enum, tuple[...], a frozen attrs "
        "class or dataclass, or give a TypeSerializer",
        place=_key_place(path),
    )


def _key_place(path: tuple[str, ...]) -> str:
    """Return the place of a nested type for an error, such as ``key type at shop.city``.

    Each part of `path` is a field with a point before its name, or an index in brackets.
    """
    return f"key type at {''.join(path).removeprefix('.')}" if path else "key type"


def _named_codec(declared: Any) -> KeyCodec | None:
    """Return the codec of an enum or of a ``Literal``; None for any other type."""
    if is_literal(declared):
        values = get_args(declared)
        kind = type(values[0])
        if kind in SCALAR_KEYS:
            return literal_codec(values, SCALAR_KEYS[kind])
        return EnumKeyCodec(kind, values)
    is_enum = isinstance(declared, type) and issubclass(declared, enum.Enum)
    # A combination of flags has no name.
    return EnumKeyCodec(declared) if is_enum and not issubclass(declared, enum.Flag) else None


def _composite_codec(
    declared: Any, find: FindSerializer, path: tuple[str, ...]
) -> TupleKeyCodec | None:
    """Return the codec of a tuple, a named tuple or a frozen class; None for any other type."""
    if get_origin(declared) is tuple and get_args(declared) and ... not in get_args(declared):
        kinds = enumerate(get_args(declared))
        return TupleKeyCodec([_part_codec(kind, find, (*path, f"[{at}]")) for at, kind in kinds])
    is_named = isinstance(declared, type) and issubclass(declared, tuple)
    is_named = is_named and hasattr(declared, "_fields")
    if not is_named and not is_struct(declared):
        return None
    try:
        fields = typed_fields(declared)
        if not fields:
            raise NodeError("a key must have fields")  # noqa: TRY301 - the type is added below
        if not is_named and (not is_frozen(declared) or declared.__hash__ is None):
            raise NodeError("a key class must be frozen and hashable")  # noqa: TRY301
        parts = [_part_codec(kind, find, (*path, f".{name}")) for name, kind in fields.items()]
        make = declared if is_named else positional_maker(declared, list(fields))
    except NodeError as error:
        raise ConfigError(shown(declared), str(error), place=_key_place(path)) from None
    names = list(fields)
    if is_named:
        # Instances of a class without slots may have attributes that are not fields.
        exact = declared.__eq__ is tuple.__eq__ and not declared.__dictoffset__
        return TupleKeyCodec(parts, make, names=names, exact=exact)
    getter = attrgetter(*names)

    def split(value: Any) -> Any:
        if type(value) is not declared:
            raise StateTypeError(declared.__name__, brief(value))
        return getter(value) if len(names) > 1 else (getter(value),)

    # A class defines its own equality, which may ignore fields. NaN is unequal to itself.
    return TupleKeyCodec(parts, make, split, names, exact=False)


def _part_codec(declared: object, find: FindSerializer, path: tuple[str, ...]) -> KeyCodec:
    plain = plain_type(declared)
    kind = _without_none(plain)
    codec = _codec(kind, find, path)
    return codec if kind is plain else NullableKeyCodec(codec)


def infer_key_type(key: object) -> DeclaredKeyType[Any]:
    """Return the type to use for a key or namespace whose type was not declared.

    Raises:
        NullValueError: `key` is None.
        ConfigError: the type of `key` cannot be a key type.
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
    """Return the key group of a key: ``pmod(xxhash64(key), max_parallelism)``, as in Spark.

    Args:
        key: the key. Like Spark's ``bigint``, a Python ``int`` is hashed as 64 bits.
        max_parallelism: the number of key groups.
        key_type: the declared type of the key, or None to infer the type from `key`.
        find: a function that returns a plugin's serializer for a type.

    Raises:
        KeyGroupRangeError: `max_parallelism` is out of range.
        NullValueError: `key` is None.
        StateTypeError: `key` is not of type `key_type`.
    """
    check_parallelism(max_parallelism)
    if key is None:
        raise NullValueError("a key")
    codec = key_codec_for(infer_key_type(key) if key_type is None else key_type, find)
    return codec.check_with_group(key, max_parallelism)[1]
