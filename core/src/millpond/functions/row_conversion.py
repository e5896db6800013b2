"""Conversion of rows: to rows with names, to columns in order, and to instances of a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, get_args

import msgspec
from typing_extensions import is_typeddict

from millpond.arguments import check_type, nearest
from millpond.errors import ConfigError, StateTypeError, brief
from millpond.types.class_fields import (
    arguments_by_field,
    field_names,
    is_msgspec_struct,
    is_struct,
    missing_keys,
    typed_fields,
)
from millpond.types.classes import positional_maker
from millpond.types.declared_types import is_union, plain_type
from millpond.types.nodes import NodeError
from millpond.types.rows import Row, as_declared, columns_fault, is_attribute, row_maker, row_type

Reader = Callable[[Any], Sequence[Any]]


def as_row(row: Any) -> Any:
    """Convert ``row``, a row of a local run, to a Row, which functions get on Spark.

    Return a row without names unchanged.

    Raises:
        ArgumentTypeError: a mapping has a key that is not a string.
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
    """Return a Row of ``names`` and ``values``; raise ArgumentTypeError if a name is no string."""
    for name in names:
        if type(name) is not str:
            check_type("a row's column", name, str)
    return row_maker(row_type(names))(values)


def selector(key: str | Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
    """Return a function that reads a value from a row.

    Args:
        key: the name of the column to read, or a function, which is returned unchanged.
        what: the argument's name, for errors.
    """
    check_type(what, key, str | Callable)
    if callable(key):
        return key

    # attrgetter splits names at dots; only columns can have names with dots.
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
    """Return the names of a row's values in their order; None if the row has no names."""
    if isinstance(row, Mapping):
        return tuple(row)
    kind: Any = type(row)
    names = _names_of_type(kind)
    if names is None and isinstance(row, tuple):
        fields = getattr(row, "__fields__", None)  # Spark's rows have names in each object
        return None if fields is None else tuple(fields)
    return names


@lru_cache(maxsize=1024)
def _names_of_type(kind: Any) -> tuple[str, ...] | None:
    """Return the field names of a NamedTuple or a class with fields; None for other types."""
    return field_names(kind) if issubclass(kind, tuple) or is_struct(kind) else None


def row_reader(kind: Any, columns: tuple[str, ...]) -> Reader:
    """Return a function that takes a row and returns its values in the order of ``columns``.

    The function raises ValueError if a row has another number of values, or other names.

    Args:
        kind: the type of the rows.
        columns: the names of the columns.

    Raises:
        TypeError: ``kind`` is not a type of rows.
        ValueError: ``kind`` has fields with other names than ``columns``.
    """
    return _reader(kind, columns)


@lru_cache(maxsize=1024)
def _reader(kind: Any, columns: tuple[str, ...]) -> Reader:
    """Return the function of ``row_reader``, cached by its arguments."""
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
    return lambda row: [getattr(row, name) for name in columns]


def is_single_value(kind: Any) -> bool:
    """Return whether instances of a type are single values instead of rows."""
    return not issubclass(kind, (tuple, list, Mapping)) and _names_of_type(kind) is None


def _picked(order: tuple[int, ...], row: Sequence[Any]) -> Sequence[Any]:
    values = tuple(row)
    return [values[position] for position in order]


def _from_sequence(columns: tuple[str, ...], row: Sequence[Any]) -> Sequence[Any]:
    """Return a list or tuple unchanged, and a Spark Row's values in the order of ``columns``."""
    names = getattr(row, "__fields__", None)
    width = len(columns) if names is None else len(names)
    if len(row) != width:
        raise ValueError(f"{len(row)} values for {width} columns")
    return row if names is None else _picked(_order(tuple(names), columns), row)


def _from_mapping(columns: tuple[str, ...], row: Mapping[str, Any]) -> Sequence[Any]:
    _order(tuple(row), columns)
    return [row[name] for name in columns]


@lru_cache(maxsize=1024)
def _order(names: tuple[str, ...], columns: tuple[str, ...]) -> tuple[int, ...]:
    """Return each column's index in ``names``; raise ValueError if names and columns differ."""
    fault = columns_fault(names, columns)
    if fault:
        raise ValueError(fault)
    if len(set(columns)) < len(columns):
        raise ValueError("two columns have the same name, so only a tuple fits")
    return tuple(names.index(column) for column in columns)


_Making = tuple[tuple[str, ...], Callable[..., Any]]
"""Names of fields, and a function that makes a row of their values."""


def row_fields(declared_type: Any) -> dict[str, Any] | None:
    """Return the name and type of each field of a row type; None if the type defines no fields.

    Row types are DDL, StructTypes, NamedTuples, TypedDicts and classes with fields.

    Raises:
        ConfigError: the type is invalid DDL, or a field has a type that cannot be stored.
    """
    declared = _python_type(declared_type)
    if hasattr(declared, "_row_type"):
        return dict(declared.__annotations__)
    if field_names(declared) is None:
        return None
    try:
        return {name: plain_type(kind) for name, kind in typed_fields(declared).items()}
    except NodeError:  # the check of the state's type raises the error
        return None


def _python_type(declared_type: Any) -> Any:
    """Return a declared row type as a Python type.

    For ``X | None``, return ``X``, because no row is None.
    """
    declared = plain_type(as_declared(declared_type))
    kinds = set(get_args(declared)) - {NoneType} if is_union(declared) else ()
    return next(iter(kinds)) if len(kinds) == 1 else declared


def row_converter(declared_type: Any) -> Callable[[Any], Any]:
    """Return a function that converts rows to a declared type by the names of its fields.

    The function returns a row unchanged if the row already has the type or has no names, or if the
    type has no fields. A row may lack fields that the type's constructor does not take. If the row
    has other names than the type in any other way, the function raises StateTypeError.
    """
    declared = _python_type(declared_type)
    of_columns = hasattr(declared, "_row_type")
    fields = row_fields(declared)
    if fields is None:
        return lambda row: row
    names = tuple(fields)
    unchanged = (None, names) if of_columns else (None,)
    expected = f"a row of {', '.join(names)}" if of_columns else declared.__name__
    made_of = _makers(declared, names)

    def made(row: Any) -> Any:
        found = row_names(row)
        if type(row) is declared or found in unchanged:
            return row
        given, make = made_of(found)
        try:
            values = row_reader(type(row), given)(row)
        except ValueError as error:
            raise StateTypeError(expected, brief(row), reason=str(error)) from None
        return make(*values)

    return made


def _makers(declared: Any, names: tuple[str, ...]) -> Callable[[Any], _Making]:
    """Return a function that chooses the conversion of a row by the row's names.

    A conversion is a pair: the names of the values to take from the row, and a function that makes
    the new row of these values.
    """
    if not is_struct(declared) and not is_typeddict(declared):
        make = row_type(names) if hasattr(declared, "_row_type") else declared
        return lambda _: (names, make)
    is_dict = is_typeddict(declared)
    taken = set(names) - missing_keys(declared) if is_dict else arguments_by_field(declared)

    @lru_cache(maxsize=64)
    def of_row(found: tuple[str, ...]) -> _Making:
        given = tuple(name for name in names if name in taken or name in found)
        if is_dict:
            return given, lambda *values: dict(zip(given, values, strict=True))
        return given, positional_maker(declared, given)

    return of_row


def field_reader(declared_type: Any, field: str) -> Callable[[Any], Any]:
    """Return a function that reads a field of rows of a declared type.

    It returns None if the row is a dict that lacks the key.
    """
    if is_typeddict(_python_type(declared_type)):
        return lambda row: row.get(field)
    return selector(field, "field")


def with_field(row: Any, field: str, value: Any) -> Any:
    """Return a copy of ``row`` with ``value`` in the field ``field``."""
    if isinstance(row, tuple):
        return row._replace(**{field: value})  # type: ignore[attr-defined]
    if isinstance(row, dict):
        return {**row, field: value}
    if is_msgspec_struct(type(row)):
        return msgspec.structs.replace(row, **{field: value})
    made = copy(row)
    object.__setattr__(made, field, value)  # works for frozen classes, too
    return made
