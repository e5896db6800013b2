"""Rows of local runs: mappings become named tuples, so that functions see what Spark shows."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from millpond.arguments import check_type
from millpond.errors import ConfigError, brief

__all__ = ["as_row", "selector"]


@cache
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)  # noqa: PYI024 - the names are known at run time


def as_row(row: Any) -> Any:
    """A mapping as a named tuple; anything else as it is."""
    if isinstance(row, Mapping):
        return _row_type(tuple(row))(*row.values())
    return row


def selector(key: str | Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
    """A function that takes something out of a row, from a field's name or a callable.

    Args:
        key: the name or the callable.
        what: how an error calls what is taken.
    """
    check_type(what, key, str | Callable)
    if callable(key):
        return key

    def select(row: Any) -> Any:
        try:
            return getattr(row, key)
        except AttributeError:
            reason = f"{brief(row)} has no field {brief(key)}"
            raise ConfigError(what, reason, "row") from None

    return select
