"""Rows with names, and classes of rows, as the columns of an output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, get_args

import attrs

from millpond.arguments import check_type, nearest
from millpond.errors import ConfigError, StateTypeError, brief
from millpond.types.classes import (
    ClassError,
    arguments_by_field,
    is_struct,
    positional_maker,
    typed_fields,
)
from millpond.types.node_compiler import is_union
from millpond.types.rows import Row, as_declared, columns_fault, is_attribute, row_maker, row_type

Reader = Callable[[Any], Sequence[Any]]


def as_row(row: Any) -> Any:
    """A row of a local run as functions see it on Spark; what has no names stays as it is.

    Raises:
        ArgumentTypeError: a mapping has a key that is not text.
    """
    if isinstance(row, Row):
        return row
    names = row_names(row)
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
            hint = nearest(key, row_names(row) or ())
            raise ConfigError(what, reason, "row", suggestion=hint) from None

    return select


def row_names(row: Any) -> tuple[str, ...] | None:
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


def row_reader(kind: Any, columns: tuple[str, ...]) -> Reader:
    """What brings the values of one type's rows into the order of the columns.

    Raises:
        TypeError: no row can be of that type.
        ValueError: its names are not the columns'. The reader itself raises it for a row of
            another width, or of a type whose rows differ in their names.
    """
    return _reader(kind, columns)


def is_single_value(kind: Any) -> bool:
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


_Making = tuple[tuple[str, ...], Callable[..., Any]]
"""Names of fields, and what makes a row of their values."""


def row_fields(declared_type: Any) -> dict[str, Any] | None:
    """Name and type of each field of rows of a declared type; None where only rows can tell.

    Raises:
        ConfigError: the type is not DDL, or has a type that cannot be state.
    """
    declared = _of_a_row(declared_type)
    if hasattr(declared, "_row_type"):
        return dict(declared.__annotations__)
    return _class_fields(declared)


def _of_a_row(declared_type: Any) -> Any:
    """A type as Python declares it; for an optional one what may be None, since no row is."""
    declared = as_declared(declared_type)
    kinds = set(get_args(declared)) - {NoneType} if is_union(declared) else ()
    return next(iter(kinds)) if len(kinds) == 1 else declared


def _class_fields(declared: Any) -> dict[str, Any] | None:
    """Those of an attrs class, a dataclass or a NamedTuple."""
    is_class = isinstance(declared, type)
    if not is_class or not (is_struct(declared) or hasattr(declared, "_fields")):
        return None
    try:
        return typed_fields(declared)
    except ClassError:  # told of where the type is checked as one of state
        return None


def row_converter(declared_type: Any) -> Callable[[Any], Any]:
    """A function from a row to one of a declared type, by the names of its fields.

    A row that is of the type already stays as it is, as does one that has no names, and any row
    where the type has no fields. A row need not have what a class's constructor does not take.
    The function raises StateTypeError where the names are others.
    """
    declared = _of_a_row(declared_type)
    of_columns = hasattr(declared, "_row_type")
    fields = declared.__annotations__ if of_columns else _class_fields(declared)
    if fields is None:
        return lambda row: row
    names = tuple(fields)
    stay = (None, names) if of_columns else (None,)
    expected = f"a row of {', '.join(names)}" if of_columns else declared.__name__
    made_of = _makers(declared, names)

    def made(row: Any) -> Any:
        found = row_names(row)
        if type(row) is declared or found in stay:
            return row
        given, make = made_of(found)
        try:
            values = row_reader(type(row), given)(row)
        except ValueError as error:
            raise StateTypeError(expected, brief(row), reason=str(error)) from None
        return make(*values)

    return made


def _makers(declared: Any, names: tuple[str, ...]) -> Callable[[Any], _Making]:
    """By the names of a row, those that are taken of it, and what makes one of the type of them."""
    if not is_struct(declared):
        make = row_type(names) if hasattr(declared, "_row_type") else declared
        return lambda _: (names, make)
    taken = arguments_by_field(declared)

    @lru_cache(maxsize=64)
    def of_row(found: tuple[str, ...]) -> _Making:
        given = tuple(name for name in names if name in taken or name in found)
        return given, positional_maker(declared, given)

    return of_row


def with_field(row: Any, field: str, value: Any) -> Any:
    """A row like another one, with another value in a field."""
    if isinstance(row, tuple):
        return row._replace(**{field: value})  # type: ignore[attr-defined]
    made = copy(row)
    object.__setattr__(made, field, value)  # also of a frozen class; state makes it anew anyway
    return made
