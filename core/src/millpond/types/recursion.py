"""Classes that contain instances of themselves: references to them, with a limit of the depth.

The description of a type that contains such classes has the form ``{"recursive": [type, class,
…]}``. In it, ``{"self": n}`` refers to the class number n.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from millpond.errors import StateTypeError
from millpond.types.class_fields import field_names, is_struct, missing_keys
from millpond.types.nodes import Node

MAX_DEPTH = 200
"""The maximum depth of a recursive value: each object, container and ``X | None`` is a level.

Python's default limit of 1,000 calls allows about 300 levels.
"""


class RecursiveClass:
    """A class that contains instances of itself, directly or within other classes.

    Args:
        declared: the class.
        number: the number of the class in the description.
        depth: the depth of the value that a thread converts, in its attribute ``now``.

    Attributes:
        node: the node of the class, once it is compiled.
    """

    def __init__(self, declared: type, number: int, depth: threading.local) -> None:
        self.declared = declared
        self.number = number
        self.node: Node | None = None
        self._depth = depth

    def reference(self, levels: int) -> Node:
        """Return the node of the class for its use in another type.

        The node is mutable and cannot be hashed, even if the class is frozen, because this is not
        known before the class is compiled.

        Args:
            levels: the number of types around the reference, up to the next recursive class.
        """
        declared = self.declared
        is_dict = not is_struct(declared) and not issubclass(declared, tuple)
        named = None if issubclass(declared, tuple) or missing_keys(declared) else declared
        return Node(
            {"self": self.number},
            dict if is_dict else declared,
            self._bounded(levels, lambda node: node.pack),
            self._bounded(levels, lambda node: node.unpack),
            frozenset({"list"} if issubclass(declared, tuple) else {"map"}),
            self._bounded(levels, lambda node: node.copy or _unchanged),
            hashable=False,
            field_names=None if named is None else frozenset(field_names(declared) or ()),
            sized=True,
        )

    def _bounded(
        self, levels: int, conversion: Callable[[Node], Callable[[Any], Any]]
    ) -> Callable[[Any], Any]:
        """Return a function that converts a nested value; it raises if the value is too deep."""
        depth = self._depth

        def convert(value: Any) -> Any:
            assert self.node is not None
            before = getattr(depth, "now", 0)
            if before + levels > MAX_DEPTH:
                reason = f"values are nested more than {MAX_DEPTH} levels deep, or in a circle"
                raise StateTypeError(self.declared.__name__, type(value).__name__, reason=reason)
            depth.now = before + levels
            try:
                return conversion(self.node)(value)
            finally:
                depth.now = before

        return convert


def _unchanged(value: Any) -> Any:
    return value


def recursive_parts(description: Any) -> tuple[Any, list[Any]]:
    """Return the type and the recursive classes of a description.

    Raises:
        ValueError: the description has another form.
    """
    if not isinstance(description, dict) or "recursive" not in description:
        return description, []
    parts = description["recursive"]
    if not isinstance(parts, list) or not parts:
        raise ValueError("the description of a type with recursive classes is damaged")
    return parts[0], parts[1:]


def class_of(description: Any, classes: list[Any]) -> Any:
    """Return the class that a description refers to, and any other description unchanged.

    Raises:
        ValueError: there is no such class.
    """
    if not isinstance(description, dict) or "self" not in description:
        return description
    number = description["self"]
    if type(number) is not int or not 0 <= number < len(classes):
        raise ValueError(f"the description of a type refers to a class {number!r}")
    return classes[number]
