"""The keys of rows in a local run; a function without keys takes none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from millpond.arguments import check_type
from millpond.config import Config
from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.functions.functions import OperatorFunction, ProcessFunction
from millpond.functions.row_conversion import selector
from millpond.plugins import get_registry
from millpond.types import VOID_NAMESPACE, VoidNamespace, key_codec_for
from millpond.types.infer import row_key_codec
from millpond.types.keys import KeyCodec, TupleKeyCodec
from millpond.types.rows import row_type

T = TypeVar("T")

KeyOfRow = str | Sequence[str] | Callable[[Any], Any]
"""A field's name, the names of several fields, or a function of the row."""


def key_selector(function: OperatorFunction, key: KeyOfRow | None) -> Callable[[Any], Any]:
    """Return the function that takes the key out of a row; without keys it is always the same.

    Raises:
        ArgumentTypeError: a keyed function was given no key.
        ArgumentValueError: a function without keys was given one.
    """
    name = type(function).__name__
    if not isinstance(function, ProcessFunction):
        if key is None:
            what = "a field's name, a list of them, or a function of the row"
            expected = f"{what}, for {name} is a keyed function"
            raise ArgumentTypeError("key", expected, "None")
        return key_reader(key, "key")
    if key is not None:
        raise ArgumentValueError("key", f"none, for {name} is a function without keys", brief(key))
    return lambda _: VOID_NAMESPACE


def key_reader(key: KeyOfRow, what: str) -> Callable[[Any], Any]:
    """Return the function that takes the key out of a row; of several fields it is a row of them.

    Args:
        key: the fields, or the function itself.
        what: the argument's name, for errors.

    Raises:
        ArgumentTypeError: it is neither.
        ArgumentValueError: it names no field, or one twice.
    """
    if isinstance(key, str) or callable(key):
        return selector(key, what)
    check_type(what, key, KeyOfRow)
    for name in key:
        check_type(what, name, str)
    if not key or len(set(key)) < len(key):
        raise ArgumentValueError(what, "at least one field's name, each once", brief(key))
    readers = [selector(name, what) for name in key]
    if len(readers) == 1:
        return readers[0]
    make = row_type(key)
    return lambda row: make(*[read(row) for read in readers])


def declared_key_type(
    function: OperatorFunction,
    key: KeyOfRow | None,
    declared: T,
    config: Config | None,
) -> T | KeyCodec | type[VoidNamespace]:
    """Return the type of the keys; see ``key_type_of`` for the errors."""
    if isinstance(function, ProcessFunction):
        return VoidNamespace
    return key_type_of(key, declared, config)


def key_type_of(key: KeyOfRow | None, declared: T, config: Config | None) -> T | KeyCodec:
    """Return the type of the keys; the key of several fields is a row of them, as on Spark.

    Raises:
        ArgumentValueError: the type is not a tuple of as many parts as the key has fields.
    """
    if declared is None or key is None or isinstance(key, str) or callable(key) or len(key) == 1:
        return declared
    codec = key_codec_for(declared, get_registry((config or Config()).plugins).serializer)
    if not isinstance(codec, TupleKeyCodec) or len(codec.parts) != len(key):
        expected = f"a tuple of the types of {', '.join(key)}, as tuple[str, int]"
        raise ArgumentValueError("key_type", expected, brief(declared))
    return codec if codec.names else row_key_codec(codec.parts, key)
