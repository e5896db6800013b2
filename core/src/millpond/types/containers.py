"""Nodes of containers and unions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from millpond.errors import StateTypeError, brief
from millpond.types.foreign_scalars import is_missing, python_scalar
from millpond.types.node import Node, entries_of, is_custom, mapping_of
from millpond.types.plain_parts import quickened, quickened_list
from millpond.types.weights import (
    Weight,
    choice_weight,
    entries_weight,
    items_weight,
    parts_weight,
)

_ALIKE = (
    "are stored alike, as two Decimal NaNs are, or one moment in UTC and in a zone where the clock "
    "shows it twice: one would be lost"
)


def _refuse(kind: type, value: Any) -> StateTypeError:
    reason = ""
    if isinstance(value, kind):
        reason = f"its type is a subclass, which would come back as {kind.__name__}"
    return StateTypeError(kind.__name__, brief(value), reason=reason)


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise StateTypeError("list", brief(value))
    return value


def list_node(element: Node) -> Node:
    """``list[X]``."""
    pack_item, unpack_item, copy_item = element.pack, element.unpack, element.copy

    def pack(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _refuse(list, value)
        return [pack_item(item) for item in value]

    def unpack(plain: Any) -> list[Any]:
        return [unpack_item(item) for item in _items(plain)]

    copy: Callable[[Any], Any] = list.copy
    if copy_item is not None:
        copy = lambda value: [copy_item(item) for item in value]  # noqa: E731 - a def is no shorter
    shapes = frozenset({"list"})
    node = Node(
        {"list": [element.description]},
        list,
        pack,
        unpack,
        shapes,
        copy,
        hashable=False,
        weight=items_weight(element.weight),
    )
    return quickened_list(node, element)


def set_node(kind: type[set[Any] | frozenset[Any]], element: Node) -> Node:
    """``set[X]`` and ``frozenset[X]``; elements are hashable, so they are immutable."""

    def pack(value: Any) -> list[Any]:
        if type(value) is not kind:
            raise _refuse(kind, value)
        return [element.pack(item) for item in value]

    def unpack(plain: Any) -> Any:
        made = kind(element.unpack(item) for item in _items(plain))
        if len(made) != len(plain):
            reason = f"two of its elements {_ALIKE}"
            raise StateTypeError(kind.__name__, brief(made), reason=reason)
        return made

    frozen = kind is frozenset
    description = {kind.__name__: [element.description]}
    copy = None if frozen else kind.copy
    return Node(
        description,
        kind,
        pack,
        unpack,
        frozenset({"list"}),
        copy,
        hashable=frozen,
        weight=items_weight(element.weight),
    )


def tuple_node(parts: Sequence[Node], *, repeated: bool) -> Node:
    """``tuple[X, Y]``, and ``tuple[X, ...]`` where repeated."""
    count = len(parts)

    def matched(values: Any) -> Any:
        if repeated:
            return [(parts[0], item) for item in values]
        if len(values) != count:
            reason = "wrong number of parts"
            raise StateTypeError(f"tuple of {count}", brief(values), reason=reason)
        return zip(parts, values, strict=True)

    def pack(value: Any) -> list[Any]:
        if type(value) is not tuple:
            raise _refuse(tuple, value)
        return [part.pack(item) for part, item in matched(value)]

    def unpack(plain: Any) -> tuple[Any, ...]:
        return tuple([part.unpack(item) for part, item in matched(_items(plain))])

    def copy(value: Any) -> tuple[Any, ...]:
        return tuple([item if p.copy is None else p.copy(item) for p, item in matched(value)])

    immutable = all(part.copy is None for part in parts)
    described = [part.description for part in parts] + ["..."] * repeated
    if repeated:
        weight: Weight = items_weight(parts[0].weight)
    else:
        weight = parts_weight((itemgetter(at), part.weight) for at, part in enumerate(parts))
    node = Node(
        {"tuple": described},
        tuple,
        pack,
        unpack,
        frozenset({"list"}),
        None if immutable else copy,
        hashable=all(part.hashable for part in parts),
        weight=weight,
    )
    return node if repeated else quickened(node, parts)


_NO_MAP_KEYS = {"custom", "ext", "list", "map"}


def dict_node(key: Node, item: Node) -> Node:
    """``dict[K, V]``; keys are hashable, so they are immutable."""
    pack_key, pack_item, copy_item = key.pack, item.pack, item.copy
    # Keys that are not scalars make a list of pairs.
    shapes = frozenset({"map", "list"}) if key.shapes & _NO_MAP_KEYS else {"map"}
    always_map = "list" not in shapes

    def pack(value: Any) -> Any:
        if type(value) is not dict:
            raise _refuse(dict, value)
        if always_map:
            packed: Any = {pack_key(name): pack_item(entry) for name, entry in value.items()}
        else:
            packed = mapping_of([(pack_key(k), pack_item(entry)) for k, entry in value.items()])
        if len(packed) != len(value):
            raise StateTypeError("dict", brief(value), reason=f"two of its keys {_ALIKE}")
        return packed

    def unpack(plain: Any) -> dict[Any, Any]:
        made = {key.unpack(name): item.unpack(entry) for name, entry in entries_of(plain)}
        if len(made) != len(plain):
            raise StateTypeError("dict", brief(made), reason=f"two of its keys {_ALIKE}")
        return made

    copy: Callable[[Any], Any] = dict.copy
    if copy_item is not None:
        copy = lambda value: {name: copy_item(entry) for name, entry in value.items()}  # noqa: E731
    description = {"dict": [key.description, item.description]}
    return Node(
        description,
        dict,
        pack,
        unpack,
        frozenset(shapes),
        copy,
        hashable=False,
        weight=entries_weight(key.weight, item.weight),
    )


class UnionError(Exception):
    """The parts of a union cannot be told apart in what is stored."""


_SHAPES: dict[type, str] = {
    type(None): "nil",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    list: "list",
    dict: "map",
}


def _shape(plain: Any) -> str:
    return _SHAPES.get(type(plain)) or ("custom" if is_custom(plain) else "ext")


def _check_apart(parts: Sequence[Node]) -> None:
    for number, one in enumerate(parts):
        for other in parts[:number]:
            shared = one.shapes & other.shapes
            by_fields = one.field_names is not None and other.field_names is not None
            if by_fields and one.field_names != other.field_names:
                shared -= {"map"}
            if shared or one.python_type is other.python_type:
                raise UnionError(
                    f"{other.python_type.__name__} and {one.python_type.__name__} are stored "
                    "alike, so what is read could be either"
                )


def union_node(parts: Sequence[Node]) -> Node:
    """``X | None``, and unions whose parts can be told apart in what is stored.

    Raises:
        UnionError: they cannot.
    """
    _check_apart(parts)
    given = [part for part in parts if part.python_type is not type(None)]
    optional = len(given) < len(parts)
    pack, unpack = _optional(given[0]) if optional and len(given) == 1 else _choice(parts)
    by_type = {part.python_type: part for part in parts}

    def copy(value: Any) -> Any:
        part = by_type.get(
            type(value), given[0]
        )  # a row's class may be another of the same columns
        return value if part.copy is None else part.copy(value)

    return Node(
        {"union": sorted((part.description for part in parts), key=str)},
        object,
        pack,
        unpack,
        frozenset().union(*(part.shapes for part in parts)),
        None if all(part.copy is None for part in parts) else copy,
        hashable=all(part.hashable for part in parts),
        weight=choice_weight({part.python_type: part.weight for part in parts}),
    )


def _optional(part: Node) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    pack, unpack = part.pack, part.unpack

    def pack_optional(value: Any) -> Any:
        if value is None:
            return None
        try:
            return pack(value)
        except StateTypeError:
            if is_missing(value):
                return None
            raise

    return pack_optional, lambda plain: None if plain is None else unpack(plain)


def _plain(expected: str, value: Any) -> Any:
    """Return a scalar of NumPy or pandas as a Python value, and any other value as it is."""
    try:
        return python_scalar(value)
    except ValueError as error:
        raise StateTypeError(expected, brief(value), reason=str(error)) from None


def _choice(parts: Sequence[Node]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    by_type = {part.python_type: part for part in parts}
    by_shape = {shape: part for part in parts for shape in part.shapes}
    by_fields = {part.field_names: part for part in parts if part.field_names is not None}
    words = " | ".join(part.python_type.__name__ for part in parts)

    def pack(value: Any) -> Any:
        part = by_type.get(type(value)) or by_type.get(type(_plain(words, value)))
        if part is None:
            raise StateTypeError(words, brief(value))
        return part.pack(_plain(words, value) if part.python_type is type(None) else value)

    def unpack(plain: Any) -> Any:
        part = by_shape.get(_shape(plain))
        if len(by_fields) > 1 and isinstance(plain, dict):
            part = by_fields.get(frozenset(plain))
        if part is None:
            raise StateTypeError(words, brief(plain))
        return part.unpack(plain)

    return pack, unpack
