"""Rows as a type of state: declared columns, or a class of the user's that rows are made into."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from millpond.errors import StateTypeError, brief
from millpond.runtime.named_rows import names_of, reader_of
from millpond.types.classes import ClassError, positional_maker
from millpond.types.describe import is_struct, typed_fields
from millpond.types.row_types import as_declared
from millpond.types.rows import row_type

__all__ = ["fields_of_rows", "made_into", "replaced"]


def fields_of_rows(declared_type: Any) -> dict[str, Any] | None:
    """Name and type of each field of rows of a declared type; None where only rows can tell.

    Raises:
        ConfigError: the type is not DDL, or has a type that cannot be state.
    """
    declared: Any = as_declared(declared_type)
    if hasattr(declared, "_row_type"):
        return dict(declared.__annotations__)
    return _class_fields(declared)


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
    where the type has no fields. The function raises StateTypeError where the names are others.
    """
    declared: Any = as_declared(declared_type)
    of_columns = hasattr(declared, "_row_type")
    fields = declared.__annotations__ if of_columns else _class_fields(declared)
    if fields is None:
        return lambda row: row
    names = tuple(fields)
    stay = (None, names) if of_columns else (None,)
    make = positional_maker(declared, names) if is_struct(declared) else declared
    make = row_type(names) if of_columns else make

    def made(row: Any) -> Any:
        if type(row) is declared or names_of(row) in stay:
            return row
        try:
            values = reader_of(type(row), names)(row)
        except ValueError as error:
            expected = f"a row of {', '.join(names)}" if of_columns else declared.__name__
            raise StateTypeError(expected, brief(row), reason=str(error)) from None
        return make(*values)

    return made


def replaced(row: Any, field: str, value: Any) -> Any:
    """A row like another one, with another value in a field."""
    if isinstance(row, tuple):
        return row._replace(**{field: value})  # type: ignore[attr-defined]
    made = copy(row)
    object.__setattr__(made, field, value)  # also of a frozen class; state makes it anew anyway
    return made
