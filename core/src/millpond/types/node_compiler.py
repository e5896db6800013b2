"""The compiler of declared types, which returns the ``Node`` of a type or refuses the type.

A ``Node`` converts the values of a type to plain MessagePack values and back.
"""

from __future__ import annotations

import enum
import threading
from typing import Any, get_args, get_origin

import attrs
from typing_extensions import is_typeddict

from millpond.errors import ConfigError, StateTypeError, shown
from millpond.types.base import FindSerializer, no_serializer
from millpond.types.class_fields import exchanged_names, field_names, is_struct, typed_fields
from millpond.types.classes import named_tuple_node, struct_node, typed_dict_node
from millpond.types.declared_types import is_literal, is_union, plain_type
from millpond.types.enums import enum_node, flag_node, literal_node
from millpond.types.nodes import (
    NONE_NODE,
    SCALAR_NODES,
    Node,
    NodeError,
    custom_node,
    dict_node,
    list_node,
    set_node,
    tuple_node,
    union_node,
)
from millpond.types.recursion import RecursiveClass

# The reader of snapshot metadata allows four levels of JSON for each level of a type.
MAX_NESTING = 20
TOO_DEEP = f"it is nested more than {MAX_NESTING} levels deep; give a TypeSerializer"

_CURE = (
    "declare a type with its parts (list[int], not list), an attrs class, a dataclass, or give a "
    "TypeSerializer"
)
_GENERIC = (
    "of generic classes only pydantic models are supported; declare a class whose fields have types"
)


def node_of(declared: Any, find: FindSerializer = no_serializer) -> Node:
    """Return the ``Node`` of a declared type.

    Args:
        declared: the type.
        find: a function that returns a plugin's serializer for a type.

    Raises:
        ConfigError: the type, or a type nested in it, cannot be stored. The error names the nested
            type.
    """
    recursive: list[type] = []
    while True:
        try:
            return _Compiler(declared, find, recursive).compiled()
        except _RecursionFoundError as found:
            recursive.append(found.declared)


class _RecursionFoundError(Exception):
    """A class contains itself: the compilation starts again with this knowledge."""

    def __init__(self, declared: type) -> None:
        super().__init__(declared)
        self.declared = declared


class _Compiler:
    """The compilation of one declared type.

    Args:
        root: the declared type, whose name is part of all error messages.
        find: a function that returns a plugin's serializer for a type.
        recursive: the classes that are known to contain themselves. They are compiled once, and
            each use of them becomes a reference.
    """

    def __init__(self, root: Any, find: FindSerializer, recursive: list[type]) -> None:
        self._root = root
        self._find = find
        self._open: list[Any] = []  # the types that enclose the one being compiled
        depth = threading.local()
        self._recursive = {
            kind: RecursiveClass(kind, at, depth) for at, kind in enumerate(recursive)
        }
        self._in_recursive_class = False
        self._references = 0

    def compiled(self) -> Node:
        """Return the node of the root type."""
        made = self.node(self._root, "")
        if not self._recursive:
            return made
        self._in_recursive_class = True
        parts = [made.description]
        for known in self._recursive.values():
            known.node = self._new_node(known.declared, "")
            parts.append(known.node.description)
        root = plain_type(self._root)
        if isinstance(root, type) and root in self._recursive:
            made = self._recursive[root].node or made
        return attrs.evolve(made, description={"recursive": parts})

    def node(self, declared: Any, place: str) -> Node:
        """Return the node of `declared`, a type nested in the root type at the path `place`."""
        declared = plain_type(declared)
        if isinstance(declared, type) and declared in SCALAR_NODES:
            return SCALAR_NODES[declared]
        if declared is None or declared is type(None):
            return NONE_NODE
        if isinstance(declared, type) and declared in self._recursive:
            self._references += 1
            return self._recursive[declared].reference(len(self._open))
        return self._new_node(declared, place)

    def _new_node(self, declared: Any, place: str) -> Node:
        """Return the node of `declared`, which is neither a scalar nor a reference."""
        if isinstance(declared, type) and any(declared is known for known in self._open):
            raise _RecursionFoundError(declared)
        if len(self._open) >= MAX_NESTING:
            raise self._error(type(declared), "", TOO_DEEP)
        self._open.append(declared)
        try:
            made = self._composite(declared, place)
        except (NodeError, StateTypeError) as error:
            raise self._error(declared, place, str(error)) from None
        finally:
            self._open.pop()
        if made is None:
            raise self._error(declared, place)
        return made

    def _composite(self, declared: Any, place: str) -> Node | None:  # noqa: PLR0911 - by type
        """Return the node of a type with nested types, or None if `declared` has none."""
        origin, arguments = get_origin(declared), get_args(declared)
        if is_union(declared):
            return union_node([self.node(part, place) for part in arguments])
        if origin is tuple:
            repeated = len(arguments) == 2 and arguments[1] is ...  # noqa: PLR2004 - tuple[X, ...]
            kinds = arguments[:1] if repeated else arguments
            if any(kind is ... for kind in kinds):
                return None
            parts = [self.node(kind, f"{place}[{at}]") for at, kind in enumerate(kinds)]
            return tuple_node(parts, repeated=repeated)
        if origin in (list, set, frozenset) and len(arguments) == 1:
            inside = f"{place}[]"
            if origin is list:
                return list_node(self.node(arguments[0], inside))
            return set_node(origin, self._hashable(arguments[0], inside, "a set's element"))
        if origin is dict and len(arguments) == 2:  # noqa: PLR2004 - key and value
            key = self._hashable(arguments[0], f"{place}[key]", "a dictionary's key")
            return dict_node(key, self.node(arguments[1], f"{place}[value]"))
        if is_literal(declared):
            if not arguments:
                raise NodeError("it has no values")
            return literal_node(arguments, self.node(type(arguments[0]), place))
        if field_names(origin) is not None:
            raise NodeError(_GENERIC)
        return self._class(declared, place) if isinstance(declared, type) else None

    def _hashable(self, declared: Any, place: str, role: str) -> Node:
        """Return the node of a dictionary key or set element; raise ConfigError if not hashable."""
        node = self.node(declared, place)
        if not node.hashable:
            reason = f"{role} must be immutable and hashable; use a scalar, a tuple, a frozen class"
            raise self._error(declared, place, reason)
        return node

    def _class(self, declared: type, place: str) -> Node | None:
        """Return the node of a class, or None if the class has no serializer, members or fields."""
        custom = self._find(declared)
        if custom is not None:
            return custom_node(declared, custom)
        if issubclass(declared, enum.Enum):
            return flag_node(declared) if issubclass(declared, enum.Flag) else enum_node(declared)
        if field_names(declared) is None:
            return None
        fields = typed_fields(declared)
        exchanged = exchanged_names(declared)
        if exchanged:
            raise NodeError(
                f"its fields {' and '.join(map(repr, exchanged))} are declared to have exchanged "
                "their names, and stored values do not say whether they have; give the fields new "
                "names"
            )
        before = self._references
        parts = {
            name: self.node(kind, f"{place}.{name}" if place else name)
            for name, kind in fields.items()
        }
        if is_typeddict(declared):
            return typed_dict_node(declared, parts)
        if not is_struct(declared):
            return named_tuple_node(declared, parts)
        recursive = self._in_recursive_class and self._references > before
        return struct_node(declared, parts, recursive=recursive)

    def _error(self, declared: Any, place: str, reason: str = _CURE) -> ConfigError:
        part = f"{_name(declared)}{f', at {place},' if place else ''}"
        why = f"this type cannot be stored: {part} is refused: {reason}"
        return ConfigError(_name(self._root), why, place="state type")


def _name(declared: Any) -> str:
    """Return the name of a type for an error message. The name of a class includes its module."""
    plain = isinstance(declared, type) and get_origin(declared) is None
    return f"{declared.__module__}.{declared.__qualname__}" if plain else shown(declared, 200)
