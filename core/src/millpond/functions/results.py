"""What a user's function returns: rows that it yields, or a collection of rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from millpond.arguments import unrun_by
from millpond.errors import FunctionResultError, OutputTypeError, brief
from millpond.functions.user_code import Place, place_of_method, place_of_yield

Check = Callable[[Any], None]
"""Raises OutputTypeError for a row that does not fit the declared output."""

_ONE_ROW = (str, bytes, bytearray, tuple, Mapping)
"""Iterable, but one value or one row: spread, its parts would be taken for rows."""


def yields(method: Callable[..., Any]) -> bool:
    """Whether what a method returns needs no check, for it is a generator."""
    return inspect.isgeneratorfunction(method)


def check_ran(given: object, what: str = "it") -> None:
    """Raise TypeError if a method that gives no rows has returned a generator: it has not run."""
    word = unrun_by(given)
    if word:
        reason = (
            f"{what} gives no rows, and with {word} nothing of it has run: leave the "
            f"{word.split()[-1]} out"
        )
        raise TypeError(reason)


def call(method: Callable[..., Any], *arguments: Any) -> None:
    """Call a method that gives no rows; see ``check_ran``."""
    given = method(*arguments)
    if given is not None:
        name: str = getattr(method, "__qualname__", repr(method))  # a partial has none
        check_ran(given, name.rpartition("<locals>.")[2])


def rows_of(method: Callable[..., Any], result: Any) -> Iterable[Any]:
    """What a method has returned, as rows.

    Raises:
        FunctionResultError: it is one row or value, and no collection of rows.
    """
    # Most are lists: what an abstract class is asked takes 0.2 µs.
    if type(result) is list:
        return result
    if isinstance(result, Iterable) and not isinstance(result, _ONE_ROW):
        return result
    raise refusal(method, result, "rows")


def refusal(method: Callable[..., Any], result: Any, expected: str) -> FunctionResultError:
    """The error that says what a method has returned, and what is expected."""
    name = getattr(method, "__qualname__", repr(method))
    place = place_of_method(method) or Place("", 0, name)
    return FunctionResultError(name, place.file, place.line, brief(result), expected)


def checked_rows(
    method: Callable[..., Any], users: Callable[..., Any] | None, result: Any, check: Check
) -> Iterator[Any]:
    """What a method has returned, as rows, each checked while its ``yield`` can be named.

    Args:
        method: what was called.
        users: the user's own method, which gives the rows to it, or is the same; None where
            there is none.
        result: what was returned.
        check: called with each row.

    Raises:
        FunctionResultError, OutputTypeError: a row is none, or does not fit.
    """
    rows = rows_of(method, result)
    for row in rows:
        try:
            check(row)
        except OutputTypeError as error:
            place = None if users is None else place_of_yield(users, rows)
            if place is not None:
                error.method, error.file, error.line = place.name, place.file, place.line
            raise
        yield row
