"""Rows as a type of state: declared columns, or a class of the user's that rows are made into."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from types import NoneType
from typing import Any, get_args

from millpond.errors import StateTypeError, brief
from millpond.functions.named_rows import names_of, reader_of
from millpond.types.classes import ClassError, arguments_by_field, positional_maker
from millpond.types.describe import is_struct, is_union, typed_fields
from millpond.types.row_types import as_declared
from millpond.types.rows import row_type

__all__ = ["fields_of_rows", "made_into", "replaced"]

_Making = tuple[tuple[str, ...], Callable[..., Any]]
"""Names of fields, and what makes a row of their values."""


def fields_of_rows(declared_type: Any) -> dict[str, Any] | None:
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


def made_into(declared_type: Any) -> Callable[[Any], Any]:
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
        found = names_of(row)
        if type(row) is declared or found in stay:
            return row
        given, make = made_of(found)
        try:
            values = reader_of(type(row), given)(row)
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


def replaced(row: Any, field: str, value: Any) -> Any:
    """A row like another one, with another value in a field."""
    if isinstance(row, tuple):
        return row._replace(**{field: value})  # type: ignore[attr-defined]
    made = copy(row)
    object.__setattr__(made, field, value)  # also of a frozen class; state makes it anew anyway
    return made
