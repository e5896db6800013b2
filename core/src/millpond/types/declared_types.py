"""Declared types without aliases: ``NewType``, ``Annotated``, ``type X = …`` and ``Literal``."""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin


def is_union(declared: Any) -> bool:
    """Return whether `declared` is a union such as ``X | Y`` or ``Optional[X]``."""
    return get_origin(declared) in (Union, types.UnionType)


def is_literal(declared: Any) -> bool:
    """Return whether `declared` is a ``Literal``."""
    return get_origin(declared) is Literal


def plain_type(declared: Any) -> Any:
    """Return the type that `declared` names.

    ``NewType``, ``Annotated`` and aliases (``type X = …``) are names of another type. A ``Literal``
    with values of several types becomes a union of one ``Literal`` per type, and its None becomes
    the member None. The members of a union are plain types, too. Types within other types remain
    unchanged.
    """
    while True:
        if isinstance(declared, NewType):
            declared = declared.__supertype__
        elif get_origin(declared) is Annotated:
            declared = declared.__origin__
        elif type(declared).__name__ == "TypeAliasType":  # of typing or typing_extensions
            declared = declared.__value__
        else:
            break
    if not is_union(declared) and not is_literal(declared):
        return declared
    members: list[Any] = []
    literals: dict[type, list[Any]] = {}
    for member in _members(declared):
        if not is_literal(member):
            members.append(member)
            continue
        for value in get_args(member):
            literals.setdefault(type(value), []).append(value)
    nones = [None] if literals.pop(type(None), None) else []
    parts = (*members, *(Literal[tuple(values)] for values in literals.values()), *nones)
    unchanged = not parts or all(map(operator.is_, parts, get_args(declared)))
    return declared if unchanged else Union[parts]  # noqa: UP007 - known at run time


def _members(declared: Any) -> Iterator[Any]:
    if is_union(declared):
        for part in get_args(declared):
            yield from _members(plain_type(part))
    else:
        yield declared
