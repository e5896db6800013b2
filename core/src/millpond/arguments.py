"""Checks of the arguments of public functions; the error names the wrong argument.

They do not run for each row: states check values by their serializers.
"""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from numbers import Integral
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from millpond.errors import ArgumentTypeError, ArgumentValueError, brief

P = ParamSpec("P")
R = TypeVar("R")

INT64 = (-(1 << 63), (1 << 63) - 1)
"""The bounds of times in ms."""
CHECKPOINT_IDS = (0, 10**18 - 1)
"""The bounds of checkpoint ids: file names have up to 18 digits for them."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name in ``known`` that is most similar to ``name``; None if no name is similar.

    Case is ignored. ``cutoff`` is the least similarity, from 0 to 1.
    """
    folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of each call against the function's annotations.

    The elements of containers are not checked.

    Raises:
        ArgumentTypeError: raised by the call for an argument of another type.
    """
    signature = inspect.signature(function)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    checks = [name for name, p in signature.parameters.items() if p.kind not in variadic]

    @cache
    def hints() -> dict[str, Any]:
        found = get_type_hints(function)  # at the first call, when all names are defined
        return {name: found[name] for name in checks if name in found}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        for name, hint in hints().items():
            if name in given:
                check_type(name, given[name], hint)
        return function(*args, **kwargs)

    return call


def typed(hint: Any) -> Callable[[Any, Any, Any], None]:
    """Return an attrs validator that raises ArgumentTypeError if a field is not a ``hint``."""
    return lambda _, attribute, value: check_type(attribute.name, value, hint)


def within(lowest: int, highest: int) -> Callable[[Any, Any, Any], None]:
    """Return an attrs validator that refuses ints below ``lowest`` or above ``highest``."""
    return lambda _, attribute, value: check_within(attribute.name, value, lowest, highest)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Raise ArgumentTypeError, naming ``name``, unless ``value`` is of the type ``hint``."""
    if not _fits(value, hint):
        raise ArgumentTypeError(name, _described(hint), brief(value))


def check_within(name: str, value: Any, lowest: int, highest: int) -> None:
    """Check that the argument ``name`` is an int from ``lowest`` to ``highest``.

    Raises:
        ArgumentTypeError: ``value`` is not an int.
        ArgumentValueError: ``value`` is out of bounds.
    """
    check_type(name, value, int)
    if not lowest <= value <= highest:
        raise ArgumentValueError(name, f"a whole number within {lowest}..{highest}", brief(value))


def event_time_ms(name: str, value: Any) -> int | None:
    """Return the event time ``value``, an integer of any library or None, as a Python int or None.

    Raises:
        ArgumentTypeError: the value is not an integer.
        ArgumentValueError: the value exceeds 64 bits.
    """
    return None if value is None else moment_ms(name, value, "int or None")


def moment_ms(name: str, value: Any, expected: str = "int") -> int:
    """Return ``value``, a time or duration in ms as an integer of any library, as a Python int.

    Raises:
        ArgumentTypeError: the value is not an integer. The error names the type ``expected``.
        ArgumentValueError: the value exceeds 64 bits.
    """
    # A NumPy duration counts as Integral, but has no __index__.
    whole = isinstance(value, Integral) and hasattr(value, "__index__")
    if not whole or isinstance(value, bool):
        raise ArgumentTypeError(name, expected, brief(value))
    moment = int(value)
    check_within(name, moment, *INT64)
    return moment


def check_text(name: str, value: str) -> None:
    """Raise ArgumentValueError if UTF-8 cannot encode ``value``: it has half a surrogate pair.

    If such a string reached the JVM, Py4J would drop the thread's connection, and the thread's next
    connection would have no active session.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentValueError(name, "text of whole characters", brief(value)) from None


def check_elements(name: str, values: object) -> None:
    """Raise ArgumentTypeError unless ``values`` is an iterable of elements.

    Strings, bytes and mappings are refused, because iterating over them yields characters, numbers
    or keys.
    """
    if type(values) is list:
        return
    check_type(name, values, Iterable)
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping)):
        raise ArgumentTypeError(name, "a collection of elements", brief(values))


def unstarted_kind(given: object) -> str:
    """Return 'a yield' if ``given`` is a generator, 'an async' if it is a coroutine, else ''.

    A call that returns a generator or coroutine has not run the function's code. The caller
    then raises an error.

    Args:
        given: the result of a call of a user's function.
    """
    found = _UNRUN.get(type(given), "")
    if found and isinstance(given, types.CoroutineType):
        given.close()  # or Python warns that it was never awaited
    return found


_UNRUN: dict[type, str] = {
    types.GeneratorType: "a yield",
    types.AsyncGeneratorType: "a yield",
    types.CoroutineType: "an async",
}


def _fits(value: Any, hint: Any) -> bool:
    """Return whether ``value`` is of the type ``hint``; true if ``hint`` cannot be checked."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(known) and value == known for known in parts)
    kind = hint if origin is None else origin
    if kind is Any or not isinstance(kind, type):  # a type variable, for instance
        return kind is not None or value is None
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    static = getattr(kind, "_is_protocol", False) and not getattr(
        kind, "_is_runtime_protocol", False
    )
    return static or isinstance(value, kind)


def _described(hint: Any) -> str:
    """Return the type ``hint`` as text for an error."""
    if hint is type(None) or hint is None:
        return "None"
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_described(part) for part in parts)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, parts))
    named = hint if origin is None else origin
    return getattr(named, "__name__", str(named))
