"""Checking the arguments of public functions: an error names the wrong one.

Not for what runs per row: states check values by their serializers.
"""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from numbers import Integral
from typing import (
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from millpond.errors import ArgumentTypeError, ArgumentValueError, brief

P = ParamSpec("P")
R = TypeVar("R")

INT64 = (-(1 << 63), (1 << 63) - 1)
"""The bounds of times in ms."""
CHECKPOINT_IDS = (0, 10**18 - 1)
"""The bounds of checkpoint ids, which have up to 18 digits in the names of files."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like a wrong one, or None; case counts last."""
    folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Have each call's arguments checked against the function's annotations.

    Containers are checked themselves, not what is in them.

    Raises:
        ArgumentTypeError: by the call, where an argument is of another type.
    """
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:
        return get_type_hints(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if name in hints() and signature.parameters[name].kind not in _VARIADIC:
                check_type(name, value, hints()[name])
        return function(*args, **kwargs)

    return call


def typed(hint: Any) -> Callable[[Any, Any, Any], None]:
    """A validator of an attrs field: the value is of a type."""
    return lambda _, attribute, value: check_type(attribute.name, value, hint)


def within(lowest: int, highest: int) -> Callable[[Any, Any, Any], None]:
    """A validator of an attrs field: a whole number within bounds."""
    return lambda _, attribute, value: check_within(attribute.name, value, lowest, highest)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Raise ArgumentTypeError unless a value is of an annotated type."""
    if not _fits(value, hint):
        raise ArgumentTypeError(name, _described(hint), brief(value))


def check_within(name: str, value: Any, lowest: int, highest: int) -> None:
    """Raise ArgumentTypeError for what is not a whole number, ArgumentValueError beyond bounds."""
    check_type(name, value, int)
    if not lowest <= value <= highest:
        raise ArgumentValueError(name, f"a whole number within {lowest}..{highest}", brief(value))


def event_time_ms(name: str, value: Any) -> int | None:
    """An event time as a number of Python's, given as any library's whole number; None for none.

    Raises:
        ArgumentTypeError: it is no whole number.
        ArgumentValueError: it does not fit 64 bits.
    """
    return None if value is None else moment_ms(name, value, "int or None")


def moment_ms(name: str, value: Any, expected: str = "int") -> int:
    """Return a moment or a distance in ms as Python's number, given as any library's.

    Raises:
        ArgumentTypeError: it is no whole number.
        ArgumentValueError: it does not fit 64 bits.
    """
    # A duration of NumPy's counts as Integral, but is no index.
    whole = isinstance(value, Integral) and hasattr(value, "__index__")
    if not whole or isinstance(value, bool):
        raise ArgumentTypeError(name, expected, brief(value))
    moment = int(value)
    check_within(name, moment, *INT64)
    return moment


def check_text(name: str, value: str) -> None:
    """Raise ArgumentValueError for text with half a surrogate pair, which UTF-8 cannot hold.

    Such text must not reach the JVM: Py4J drops the thread's connection over it, and the thread
    that answers from then on knows of no active session.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentValueError(name, "text of whole characters", brief(value)) from None


def check_elements(name: str, values: object) -> None:
    """Refuse what can be gone through and is no collection of elements.

    That is one value, such as a text, and a mapping, of which its keys alone would come.

    Raises:
        ArgumentTypeError: it is such a value.
    """
    if type(values) is not list and isinstance(values, _NO_ELEMENTS):
        raise ArgumentTypeError(name, "a collection of elements", brief(values))


_NO_ELEMENTS = (str, bytes, bytearray, memoryview, Mapping)


def unstarted_kind(given: object) -> str:
    """What a function holds because of which nothing of it has run, though it was called.

    Args:
        given: what the call has given: a generator, a coroutine, or what a function returns.

    Returns:
        "a yield", "an async"; "" where it has run.
    """
    found = _UNRUN.get(type(given), "")
    if found and isinstance(given, types.CoroutineType):
        given.close()  # or Python warns that nobody has awaited it
    return found


_UNRUN: dict[type, str] = {
    types.GeneratorType: "a yield",
    types.AsyncGeneratorType: "a yield",
    types.CoroutineType: "an async",
}


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any or isinstance(hint, (TypeVar, str)):
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(known) and value == known for known in get_args(hint))
    return _is_a(value, hint if origin is None else origin)


def _is_a(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if not isinstance(kind, type) or (
        getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)
    ):
        return True
    return isinstance(value, kind)


def _described(hint: Any) -> str:
    if hint is type(None) or hint is None:
        return "None"
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_described(part) for part in parts)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, parts))
    named = hint if origin is None else origin
    return getattr(named, "__name__", str(named))
