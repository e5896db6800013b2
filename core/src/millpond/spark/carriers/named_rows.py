"""Rows with names: matched to columns by name, whatever the order of their fields.

A pyspark ``Row`` with names, a named tuple, a mapping, an attrs or a dataclass instance has
names; a plain tuple, a list, and a ``Row`` made without names go by position.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import attrs
from pyspark.sql import Row

__all__ = ["names_of", "reader_of", "row_type"]

Reader = Callable[[Any], Sequence[Any]]


def row_type(names: list[str]) -> Any:
    """A named tuple type; names that are not identifiers become ``_0``, ``_1`` and so on.

    Its ``_columns`` are the names as they are.
    """
    make: Any = namedtuple  # noqa: PYI024 - names known at run time
    made = make("Row", names, rename=True)
    made._columns = tuple(names)  # noqa: SLF001 - one of ours
    return made


def names_of(row: Any) -> tuple[str, ...] | None:
    """The names that a row carries, in its own order; None where it goes by position."""
    if isinstance(row, Row):
        fields = getattr(row, "__fields__", None)
        return None if fields is None else tuple(fields)
    if isinstance(row, Mapping):
        return tuple(row)
    return _names_of_type(type(row))


def _names_of_type(kind: type) -> tuple[str, ...] | None:
    if issubclass(kind, tuple):
        # The rows that we hand out name their columns exactly; their fields are identifiers.
        return getattr(kind, "_columns", None) or getattr(kind, "_fields", None)
    if attrs.has(kind):
        return tuple(field.name for field in attrs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return None


def reader_of(kind: type, columns: tuple[str, ...]) -> Reader:
    """What brings the values of one type's rows into the order of the columns.

    Raises:
        TypeError: no row can be of that type.
        ValueError: its names are not the columns'. The reader itself raises it for a row of
            another width, or of a type whose rows differ in their names.
    """
    made: Any = kind
    return _reader(made, columns)


@lru_cache(maxsize=1024)
def _reader(kind: type, columns: tuple[str, ...]) -> Reader:
    if issubclass(kind, Row):
        return partial(_from_spark_row, columns)
    if issubclass(kind, Mapping):
        return partial(_from_mapping, columns)
    names = _names_of_type(kind)
    if names is None:
        if not issubclass(kind, (tuple, list)):
            raise TypeError("expected a tuple or a row with names")
        return partial(_by_position, columns)
    if issubclass(kind, tuple):
        return partial(_picked, _order(names, columns))
    _order(names, columns)
    return partial(_from_attributes, columns)


def _by_position(columns: tuple[str, ...], row: Sequence[Any]) -> Sequence[Any]:
    if len(row) != len(columns):
        raise ValueError(f"{len(row)} values for {len(columns)} columns")
    return row


def _picked(order: tuple[int, ...], row: Sequence[Any]) -> Sequence[Any]:
    return [row[position] for position in order]


def _from_spark_row(columns: tuple[str, ...], row: Row) -> Sequence[Any]:
    names = names_of(row)
    if names is None:
        return _by_position(columns, row)
    return _picked(_order(names, columns), _by_position(names, row))


def _from_mapping(columns: tuple[str, ...], row: Mapping[str, Any]) -> Sequence[Any]:
    _order(tuple(row), columns)
    return [row[name] for name in columns]


def _from_attributes(columns: tuple[str, ...], row: Any) -> Sequence[Any]:
    return [getattr(row, name) for name in columns]


@lru_cache(maxsize=1024)
def _order(names: tuple[str, ...], columns: tuple[str, ...]) -> tuple[int, ...]:
    """Where each column stands among the names; ValueError where they are not the same."""
    missing, unknown = Counter(columns) - Counter(names), Counter(names) - Counter(columns)
    reasons = [
        f"{what}: {', '.join(map(str, found))}"
        for what, found in (("missing", missing), ("not a column", unknown))
        if found
    ]
    if reasons:
        raise ValueError("; ".join(reasons))
    if len(set(columns)) < len(columns):
        raise ValueError("two columns have the same name, so only a tuple fits")
    return tuple(names.index(column) for column in columns)
