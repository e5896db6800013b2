"""A declared type as plain JSON values: what a checkpoint remembers of it."""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from millpond.errors import ConfigError
from millpond.types.scalars import SCALARS

__all__ = ["describe", "fields_of", "is_struct", "is_union"]

_CONTAINERS = (list, dict, tuple, set, frozenset)


def is_struct(declared: Any) -> bool:
    """Whether the type is an attrs class or a dataclass."""
    return isinstance(declared, type) and (
        attrs.has(declared) or dataclasses.is_dataclass(declared)
    )


def fields_of(declared: type) -> list[tuple[str, Any, bool]]:
    """Name, type and has-a-default of each field of an attrs class or dataclass."""
    hints = get_type_hints(declared)
    if attrs.has(declared):
        return [
            (field.name, hints[field.name], field.default is not attrs.NOTHING)
            for field in attrs.fields(declared)
        ]
    missing = dataclasses.MISSING
    return [
        (
            field.name,
            hints[field.name],
            field.default is not missing or field.default_factory is not missing,
        )
        for field in dataclasses.fields(declared)
    ]


def is_union(declared: Any) -> bool:
    """Whether the type is ``X | Y`` or ``Optional[X]``."""
    return get_origin(declared) in (Union, types.UnionType)


def describe(declared: Any) -> Any:  # noqa: PLR0911 - a case a line
    """A type as plain JSON values, for the serializer snapshot.

    Raises:
        ConfigError: the type, or a part of it, cannot be stored.
    """
    if declared in SCALARS:
        return SCALARS[declared].type_name
    if declared is None or declared is type(None):
        return "None"
    origin, arguments = get_origin(declared), get_args(declared)
    if is_union(declared):
        return {"union": sorted((describe(part) for part in arguments), key=str)}
    if origin in _CONTAINERS:
        parts = [part if part is ... else describe(part) for part in arguments]
        return {origin.__name__: ["..." if part is ... else part for part in parts]}
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return {"enum": {member.name: member.value for member in declared}}
    if isinstance(declared, type) and is_struct(declared):
        return {"struct": {name: describe(kind) for name, kind, _ in fields_of(declared)}}
    if isinstance(declared, type) and hasattr(declared, "_fields"):
        hints = get_type_hints(declared)
        return {"namedtuple": {name: describe(hints[name]) for name in declared._fields}}
    raise ConfigError(
        str(declared),
        "this type cannot be stored; declare a type with its parts (list[int], not list), an "
        "attrs class, a dataclass, or give a TypeSerializer",
        place="state type",
    )
