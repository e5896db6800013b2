"""Roughly how many bytes a value takes, by its parts: this bounds the write-back buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from millpond.types.base import TypeSerializer

SMALL = 64
"""What an object without large parts takes."""

Weight: TypeAlias = int | Callable[[Any], int]
"""A number where all values of a type weigh alike, else what weighs one: few types have to."""


def serializer_weight(serializer: TypeSerializer[Any]) -> Weight:
    """The weight of a part that has a serializer of its own."""
    return serializer.weight if serializer.sized else SMALL


def items_weight(item: Weight) -> Callable[[Any], int]:
    """The weight of a collection, all of whose items are of one type."""
    if callable(item):
        weigh = item
        return lambda value: SMALL + sum(map(weigh, value))
    each = item
    return lambda value: SMALL + each * len(value)


def entries_weight(key: Weight, item: Weight) -> Callable[[Any], int]:
    """The weight of a dictionary."""
    keys, items = items_weight(key), items_weight(item)
    return lambda value: keys(value) + items(value.values())


def parts_weight(parts: Iterable[tuple[Callable[[Any], Any], Weight]]) -> Weight:
    """The weight of a value of so many parts, each with what takes it out of the value."""
    fixed = SMALL
    weighed: list[tuple[Callable[[Any], Any], Callable[[Any], int]]] = []
    for take, weight in parts:
        if callable(weight):
            weighed.append((take, weight))
        else:
            fixed += weight
    if not weighed:
        return fixed

    def weigh(value: Any) -> int:
        total = fixed
        for take, weigh_part in weighed:
            total += weigh_part(take(value))
        return total

    return weigh


def choice_weight(by_type: Mapping[type, Weight]) -> Weight:
    """The weight of a value of one of several types."""
    weighed = {kind: weight for kind, weight in by_type.items() if callable(weight)}
    most = max((weight for weight in by_type.values() if not callable(weight)), default=SMALL)
    if not weighed:
        return most

    def weigh(value: Any) -> int:
        weight = weighed.get(type(value))
        return most if weight is None else weight(value)

    return weigh
