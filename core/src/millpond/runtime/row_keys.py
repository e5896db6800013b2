"""What gives the keys of rows in a local run; a function without keys takes none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.runtime.functions import OperatorFunction
from millpond.runtime.named_rows import selector
from millpond.runtime.process_function import ProcessFunction
from millpond.types import VOID_NAMESPACE, VoidNamespace

__all__ = ["KeyOfRow", "declared_key_type", "key_selector"]

T = TypeVar("T")

KeyOfRow = str | Callable[[Any], Any]
"""A field's name, or a function of the row."""


def key_selector(function: OperatorFunction, key: KeyOfRow | None) -> Callable[[Any], Any]:
    """What gives each row's key; without keys, always the same.

    Raises:
        ArgumentTypeError: a keyed function was given no key.
        ArgumentValueError: a function without keys was given one.
    """
    name = type(function).__name__
    if not isinstance(function, ProcessFunction):
        if key is None:
            expected = f"a field's name or a function of the row, for {name} is a keyed function"
            raise ArgumentTypeError("key", expected, "None")
        return selector(key, "key")
    if key is not None:
        raise ArgumentValueError("key", f"none, for {name} is a function without keys", brief(key))
    return lambda _: VOID_NAMESPACE


def declared_key_type(function: OperatorFunction, declared: T) -> T | type[VoidNamespace]:
    """The declared type of the keys, or that of none."""
    return VoidNamespace if isinstance(function, ProcessFunction) else declared
