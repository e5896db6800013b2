"""Errors of user functions, with the place in the user's code and a hint."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from inspect import isgeneratorfunction
from typing import Any

from millpond.errors import (
    SHIP_MODULE,
    FunctionResultError,
    OutputTypeError,
    UserFunctionError,
    said,
    shown,
)
from millpond.functions.async_functions import AsyncFunction
from millpond.functions.functions import (
    INPUTS,
    BuiltInFunction,
    Context,
    KeyedFunction,
    OperatorFunction,
    SubtaskInfo,
)
from millpond.functions.user_code import Place, place_of_method, users_frames
from millpond.state import State, StateDescriptor
from millpond.types.rows import Row, unknown_column

_NONE_HINTS = {
    "timestamp": (
        "context.timestamp is None if no column of event time is named (event_time= of "
        "process, or withWatermark before key_by), or if that column is null"
    ),
    "value": "a value state is None before its first update: give its descriptor a default=",
    "get": "the state's get() is None before anything was added or put: test for it, or "
    "with a map call get(key, default)",
}
"""Hints for a line that failed because of None, by the attribute that the line reads."""

_OPEN = "get states in open(), as with self.total = context.get_state(descriptor)"
_LONGEST_ROW = 300
_BASES = (KeyedFunction, AsyncFunction)
"""The classes whose methods are no code of the user."""


def failure_in(
    function: OperatorFunction,
    method: str,
    info: SubtaskInfo,
    error: BaseException,
    *,
    key: Any = None,
    row: Any = None,
) -> UserFunctionError:
    """Return the error to raise for an exception in a method of a function.

    Args:
        function: the user's function.
        method: the name of the called method.
        info: the subtask.
        error: the exception.
        key: the current key; None without one.
        row: the row; None for a method that gets no row.
    """
    file, line = "", 0
    if isinstance(error, (FunctionResultError, OutputTypeError)):
        file, line = error.file, error.line
    elif frames := users_frames(error):
        frame, line = frames[-1]
        file = frame.f_code.co_filename
    elif isinstance(error, TypeError) and not isinstance(function, BuiltInFunction):
        # If the signature does not accept the arguments, the traceback has no frame of the user.
        users: Any = getattr(function, method, None)
        place = place_of_method(users)
        file, line = ("", 0) if place is None else (place.file, place.line)
    return UserFunctionError(
        operator_uid=info.operator_uid,
        subtask=info.index,
        key="" if key is None else shown(key),
        method=_method_name(function, method, error),
        reason=_reason(error),
        row="" if row is None else shown(row, _LONGEST_ROW),
        file=file,
        line=line,
    )


def users_method_behind(function: OperatorFunction, method: str) -> Callable[..., Any] | None:
    """Return the method ``method`` of ``function``.

    For windows and patterns, return the user's function that makes the output rows, or None if the
    user gave none. For an AsyncFunction, return ``async_invoke``, unless the user overrides
    ``process_element``.
    """
    if isinstance(function, BuiltInFunction):
        return function.users_function
    users: Callable[..., Any] = getattr(function, method)
    if getattr(users, "__func__", None) is AsyncFunction.process_element:
        users = function.async_invoke  # type: ignore[attr-defined]  # of an AsyncFunction
    return users


def yielding_methods(function: OperatorFunction) -> dict[str, Place]:
    """Return the first line of each user's method that may yield rows, by the method's name.

    Methods that are generator functions come first.
    """
    if isinstance(function, BuiltInFunction):
        methods = {"on_timer": function.users_function}
    else:
        kind = type(function)
        names = ("process_element", "async_invoke", "process_batch", *INPUTS, "on_timer")
        ours = (None, *(vars(each).get(name) for each in _BASES for name in names))
        methods = {
            name: users for name in names if (users := getattr(kind, name, None)) not in ours
        }
    places = {name: method and place_of_method(method) for name, method in methods.items()}
    generators_first = sorted(places, key=lambda name: not isgeneratorfunction(methods[name]))
    return {name: place for name in generators_first if (place := places[name])}


def _method_name(function: OperatorFunction, method: str, error: BaseException) -> str:
    """Return the name of the failed method with its class, for the error message.

    For windows and patterns, return the name of the user's code that failed: the method of a
    trigger or evictor, the reduce function, the window function, a condition, or the selecting
    function.
    """
    if isinstance(function, BuiltInFunction):
        frames = users_frames(error)
        if isinstance(error, FunctionResultError):
            found = error.method
        elif isinstance(error, OutputTypeError):
            found = getattr(function.users_function, "__qualname__", "")
        else:
            found = frames[0][0].f_code.co_qualname if frames else ""
        if found:
            return str(found).rpartition("<locals>.")[2]
    return f"{type(function).__name__}.{method}"


def _reason(error: BaseException) -> str:
    """Return the exception's type and message, with a hint if one is known."""
    if isinstance(error, FunctionResultError):
        return str(error)
    if isinstance(error, OutputTypeError):
        return error.fault
    if isinstance(error, AttributeError) and isinstance(error.obj, Row):
        return f"AttributeError: {unknown_column(error.name or '', error.obj)}"
    hint = _hint(error)
    return f"{type(error).__name__}: {said(error)}" + (hint and f" ({hint})")


def _hint(error: BaseException) -> str:
    """Return a hint at the likely mistake; empty if none is known."""
    if isinstance(error, ModuleNotFoundError):
        return SHIP_MODULE
    if isinstance(error, TypeError) and "None" in said(error):
        frames = users_frames(error)
        line = linecache.getline(frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else ""
        names = re.findall(r"\.\s*(\w+)", line)
        return next((hint for name, hint in _NONE_HINTS.items() if name in names), "")
    if isinstance(error, AttributeError):
        if isinstance(error.obj, StateDescriptor):
            return f"a descriptor describes a state and holds nothing: {_OPEN}"
        if isinstance(error.obj, Context) and str(error.name).endswith("state"):
            return _OPEN
        if isinstance(error.obj, State):
            interfaces = [c for c in type(error.obj).__mro__ if c.__module__ == State.__module__]
            methods = {name for each in interfaces for name in vars(each) if name[0] != "_"}
            return f"the state has {', '.join(sorted(methods))}"
    return ""
