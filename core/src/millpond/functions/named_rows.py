"""Rows with names: matched to columns by name, whatever the order of their fields.

A row that a function got, a ``Row`` of Spark's with names, a named tuple, a mapping, an attrs or a
dataclass instance has names; a plain tuple, a list, and a ``Row`` made without names go by
position. Anything else is a value by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Any

import attrs

from millpond.arguments import check_type, nearest
from millpond.errors import ConfigError, brief
from millpond.types.rows import Row, columns_fault, is_attribute, row_maker, row_type

__all__ = ["as_row", "is_value", "names_of", "reader_of", "selector"]

Reader = Callable[[Any], Sequence[Any]]


def as_row(row: Any) -> Any:
    """A row of a local run as functions see it on Spark; what has no names stays as it is.

    Raises:
        ArgumentTypeError: a mapping has a key that is not text.
    """
    if isinstance(row, Row):
        return row
    names = names_of(row)
    if names is None:
        return row
    if isinstance(row, Mapping):
        return _made(names, row.values())
    if isinstance(row, tuple):
        return _made(names, row)
    return _made(names, [getattr(row, name) for name in names])


def _made(names: tuple[str, ...], values: Iterable[Any]) -> Any:
    for name in names:
        if type(name) is not str:
            check_type("a row's column", name, str)
    return row_maker(row_type(names))(values)


def selector(key: str | Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
    """A function that takes something out of a row, from a column's name or a callable.

    Args:
        key: the name or the callable.
        what: how an error calls what is taken.
    """
    check_type(what, key, str | Callable)
    if callable(key):
        return key

    # attrgetter divides names at dots, and a name with a dot can only be a row's column.
    by_attribute = is_attribute(key) and "." not in key
    read: Callable[[Any], Any] = attrgetter(key) if by_attribute else itemgetter(key)

    def select(row: Any) -> Any:
        try:
            return read(row)
        except (AttributeError, LookupError, TypeError):
            reason = f"{brief(row)} has no field {brief(key)}"
            hint = nearest(key, names_of(row) or ())
            raise ConfigError(what, reason, "row", suggestion=hint) from None

    return select


def names_of(row: Any) -> tuple[str, ...] | None:
    """The names that a row carries, in its own order; None where it goes by position."""
    if isinstance(row, Mapping):
        return tuple(row)
    kind: Any = type(row)
    names = _names_of_type(kind)
    if names is None and isinstance(row, tuple):
        fields = getattr(row, "__fields__", None)  # each of Spark's rows has names of its own
        return None if fields is None else tuple(fields)
    return names


@lru_cache(maxsize=1024)
def _names_of_type(kind: Any) -> tuple[str, ...] | None:
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None)
    if attrs.has(kind):
        return tuple(field.name for field in attrs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return None


def reader_of(kind: Any, columns: tuple[str, ...]) -> Reader:
    """What brings the values of one type's rows into the order of the columns.

    Raises:
        TypeError: no row can be of that type.
        ValueError: its names are not the columns'. The reader itself raises it for a row of
            another width, or of a type whose rows differ in their names.
    """
    return _reader(kind, columns)


def is_value(kind: Any) -> bool:
    """Whether what is of a type is a value by itself, and no row."""
    return not issubclass(kind, (tuple, list, Mapping)) and _names_of_type(kind) is None


@lru_cache(maxsize=1024)
def _reader(kind: Any, columns: tuple[str, ...]) -> Reader:
    if issubclass(kind, Mapping):
        return partial(_from_mapping, columns)
    names = _names_of_type(kind)
    if names is None and issubclass(kind, (tuple, list)):
        return partial(_from_sequence, columns)
    if names is None:
        raise TypeError("expected a tuple or a row with names")
    order = _order(names, columns)
    if issubclass(kind, tuple):
        return partial(_picked, order)
    return partial(_from_attributes, columns)


def _picked(order: tuple[int, ...], row: Sequence[Any]) -> Sequence[Any]:
    values = tuple(row)
    return [values[position] for position in order]


def _from_sequence(columns: tuple[str, ...], row: Sequence[Any]) -> Sequence[Any]:
    """By position, but for a Row of Spark's that has names."""
    names = getattr(row, "__fields__", None)
    width = len(columns) if names is None else len(names)
    if len(row) != width:
        raise ValueError(f"{len(row)} values for {width} columns")
    return row if names is None else _picked(_order(tuple(names), columns), row)


def _from_mapping(columns: tuple[str, ...], row: Mapping[str, Any]) -> Sequence[Any]:
    _order(tuple(row), columns)
    return [row[name] for name in columns]


def _from_attributes(columns: tuple[str, ...], row: Any) -> Sequence[Any]:
    return [getattr(row, name) for name in columns]


@lru_cache(maxsize=1024)
def _order(names: tuple[str, ...], columns: tuple[str, ...]) -> tuple[int, ...]:
    """Where each column stands among the names; ValueError where they are not the same."""
    fault = columns_fault(names, columns)
    if fault:
        raise ValueError(fault)
    if len(set(columns)) < len(columns):
        raise ValueError("two columns have the same name, so only a tuple fits")
    return tuple(names.index(column) for column in columns)
