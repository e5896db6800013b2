"""What a user's function returns: rows that it yields, or a collection of rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millpond.errors import FunctionResultError, brief

__all__ = ["rows_of", "yields"]

_ONE_ROW = (str, bytes, bytearray, tuple, Mapping)
"""Iterable, but one value or one row: spread, its parts would be taken for rows."""


def yields(method: Callable[..., Any]) -> bool:
    """Whether what a method returns needs no check, for it is a generator."""
    return inspect.isgeneratorfunction(method)


def rows_of(method: Callable[..., Any], result: Any) -> Iterable[Any]:
    """What a method has returned, as rows.

    Raises:
        FunctionResultError: it is one row or value, and no collection of rows.
    """
    if isinstance(result, Iterable) and not isinstance(result, _ONE_ROW):
        return result
    code = getattr(inspect.unwrap(method), "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code else ("", 0)
    name = getattr(method, "__qualname__", repr(method))
    raise FunctionResultError(name, file, line, brief(result))
