"""A declared type as a node, and as plain JSON values, which a checkpoint stores."""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from millpond.errors import ConfigError, brief
from millpond.types.base import FindSerializer, no_serializer
from millpond.types.classes import ClassError, is_given, named_tuple_node, struct_node
from millpond.types.containers import (
    UnionError,
    dict_node,
    list_node,
    set_node,
    tuple_node,
    union_node,
)
from millpond.types.enums import enum_node, flag_node
from millpond.types.node import NONE_NODE, SCALAR_NODES, Node, custom_node
from millpond.types.renames import exchanged_names

# The metadata reader allows four levels of JSON for each level of a type, and no more.
MAX_NESTING = 20
TOO_DEEP = f"it is nested more than {MAX_NESTING} levels deep; give a TypeSerializer"

_CURE = (
    "declare a type with its parts (list[int], not list), an attrs class, a dataclass, or give a "
    "TypeSerializer"
)
_EXCHANGED = (
    "its fields {} are declared to have exchanged their names, and stored values do not say "
    "whether they have; give the fields new names"
)


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
    return [
        (field.name, hints[field.name], is_given(field.default) or is_given(field.default_factory))
        for field in dataclasses.fields(declared)
    ]


def is_union(declared: Any) -> bool:
    """Whether the type is ``X | Y`` or ``Optional[X]``."""
    return get_origin(declared) in (Union, types.UnionType)


def describe(declared: Any, find: FindSerializer = no_serializer) -> Any:
    """A type as plain JSON values, for the serializer snapshot; see ``node_of``."""
    return node_of(declared, find).description


def node_of(declared: Any, find: FindSerializer = no_serializer) -> Node:
    """The node of a declared type: how its values are stored.

    Args:
        declared: the type.
        find: looks up the serializers that the job's plugins provide.

    Raises:
        ConfigError: the type, or a part of it, cannot be stored; the error names the part.
    """
    return _Compiler(declared, find).node(declared, "")


def typed_fields(declared: Any) -> dict[str, Any]:
    """Name and type of each field of an attrs class, a dataclass or a named tuple.

    Raises:
        ClassError: a field has no type, or its type cannot be found.
    """
    try:
        if is_struct(declared):
            return {name: kind for name, kind, _ in fields_of(declared)}
        hints = get_type_hints(declared)
        return {name: hints[name] for name in declared._fields}
    except KeyError as error:
        cure = "" if is_struct(declared) else ": a typing.NamedTuple has them"
        raise ClassError(f"its field {error} has no type{cure}") from None
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise ClassError(f"the types of its fields cannot be found: {error}") from None


class _Compiler:
    """Breaks a declared type into its parts; keeps what its errors name."""

    def __init__(self, root: Any, find: FindSerializer) -> None:
        self._root = root
        self._find = find
        self._open: list[Any] = []

    def _refuse(self, declared: Any, place: str, reason: str = _CURE) -> ConfigError:
        part = f"{_name(declared)}{f', at {place},' if place else ''}"
        why = f"this type cannot be stored: {part} is refused: {reason}"
        return ConfigError(_name(self._root), why, place="state type")

    def node(self, declared: Any, place: str) -> Node:
        """The node of a part."""
        if isinstance(declared, type) and declared in SCALAR_NODES:
            return SCALAR_NODES[declared]
        if declared is None or declared is type(None):
            return NONE_NODE
        if any(declared is known for known in self._open):
            raise self._refuse(declared, place, "it holds itself; give a TypeSerializer")
        if len(self._open) >= MAX_NESTING:
            raise self._refuse(type(declared), "", TOO_DEEP)
        self._open.append(declared)
        try:
            made = self._composite(declared, place)
        except (ClassError, UnionError) as error:
            raise self._refuse(declared, place, str(error)) from None
        finally:
            self._open.pop()
        if made is None:
            raise self._refuse(declared, place)
        return made

    def _composite(self, declared: Any, place: str) -> Node | None:
        origin, arguments = get_origin(declared), get_args(declared)
        if is_union(declared):
            return union_node([self.node(part, place) for part in arguments])
        if origin is tuple:
            return self._tuple(declared, arguments, place)
        if origin in (list, set, frozenset) and len(arguments) == 1:
            inside = f"{place}[]"
            if origin is list:
                return list_node(self.node(arguments[0], inside))
            return set_node(origin, self._hashable(arguments[0], inside, "a set's element"))
        if origin is dict and len(arguments) == 2:  # noqa: PLR2004 - key and value
            key = self._hashable(arguments[0], f"{place}[key]", "a dictionary's key")
            return dict_node(key, self.node(arguments[1], f"{place}[value]"))
        return self._class(declared, place) if isinstance(declared, type) else None

    def _hashable(self, declared: Any, place: str, role: str) -> Node:
        node = self.node(declared, place)
        if not node.hashable:
            reason = f"{role} must be immutable and hashable; use a scalar, a tuple, a frozen class"
            raise self._refuse(declared, place, reason)
        return node

    def _tuple(self, declared: Any, arguments: tuple[Any, ...], place: str) -> Node:
        repeated = len(arguments) == 2 and arguments[1] is ...  # noqa: PLR2004 - tuple[X, ...]
        kinds = arguments[:1] if repeated else arguments
        if any(kind is ... for kind in kinds):
            raise self._refuse(declared, place)
        parts = [self.node(kind, f"{place}[{at}]") for at, kind in enumerate(kinds)]
        return tuple_node(parts, repeated=repeated)

    def _class(self, declared: type, place: str) -> Node | None:
        custom = self._find(declared)
        if custom is not None:
            return custom_node(declared, custom)
        if issubclass(declared, enum.Enum):
            return flag_node(declared) if issubclass(declared, enum.Flag) else enum_node(declared)
        if not is_struct(declared) and not hasattr(declared, "_fields"):
            return None
        fields = typed_fields(declared)
        exchanged = exchanged_names(declared)
        if exchanged:
            raise ClassError(_EXCHANGED.format(" and ".join(map(repr, exchanged))))
        parts = {
            name: self.node(kind, f"{place}.{name}" if place else name)
            for name, kind in fields.items()
        }
        return (struct_node if is_struct(declared) else named_tuple_node)(declared, parts)


def spelled(declared: Any, limit: int = 200) -> str:
    """A declared type as an error names it; it may be anything, of any size."""
    try:
        text = brief(declared) if isinstance(declared, int) else str(declared)
    except Exception:  # noqa: BLE001 - too deep for str, or a user's __str__
        return brief(declared)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _name(declared: Any) -> str:
    plain = isinstance(declared, type) and get_origin(declared) is None
    return f"{declared.__module__}.{declared.__qualname__}" if plain else spelled(declared)
