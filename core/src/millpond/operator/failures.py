"""Errors of user functions, with the place in the user's code and a hint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import FunctionResultError, OutputTypeError, UserFunctionError, said, shown
from millpond.errors.functions import SHIP_MODULE
from millpond.functions.functions import Context, KeyedFunction, OperatorFunction, SubtaskInfo
from millpond.functions.process_functions import INPUTS
from millpond.functions.user_code import (
    Place,
    gives_rows,
    names_read,
    place_of,
    place_of_method,
    users_method,
)
from millpond.functions.windows.window_operator import WindowOperator
from millpond.state import State, StateDescriptor
from millpond.types.rows import Row, unknown_column

_NONE = {
    "timestamp": (
        "context.timestamp is None where no column of event time is named (event_time= of "
        "process, or withWatermark before key_by), and where that column is null"
    ),
    "value": "a value state is None before its first update: give its descriptor a default=",
    "get": "the state's get() is None before anything was added or put: test for it, or "
    "with a map call get(key, default)",
}
"""What an attribute that a line reads may have been, where None is what the line cannot take."""

_OPEN = "get states in open(), as with self.total = context.get_state(descriptor)"


def hint_for(error: BaseException) -> str:
    """Where None has come from, or what an object has instead; empty where nobody can tell."""
    if isinstance(error, AttributeError):
        return _attribute(error)
    if isinstance(error, ModuleNotFoundError):
        return SHIP_MODULE
    if isinstance(error, TypeError) and "None" in said(error):
        names = names_read(error)
        return next((hint for name, hint in _NONE.items() if name in names), "")
    return ""


def _attribute(error: AttributeError) -> str:
    if isinstance(error.obj, StateDescriptor):
        return f"a descriptor describes a state and holds nothing: {_OPEN}"
    if isinstance(error.obj, Context) and str(error.name).endswith("state"):
        return _OPEN
    if isinstance(error.obj, State):
        return f"the state has {', '.join(_methods(error.obj))}"
    return ""


def _methods(state: State) -> list[str]:
    """The public methods that the interfaces of a state have."""
    kinds = [kind for kind in type(state).__mro__ if kind.__module__ == State.__module__]
    return sorted({name for kind in kinds for name in vars(kind) if not name.startswith("_")})


_LONGEST_ROW = 300


def failure_of(
    function: OperatorFunction,
    method: str,
    info: SubtaskInfo,
    error: BaseException,
    *,
    key: Any = None,
    row: Any = None,
) -> UserFunctionError:
    """The error to raise for an exception in a method; key and row are None where there is none."""
    if isinstance(error, (FunctionResultError, OutputTypeError)):
        file, line = error.file, error.line
    else:
        file, line = place_of(error)
    if not file and isinstance(error, TypeError):  # a call that its signature does not take
        file, line = _beginning(function, method)
    return UserFunctionError(
        operator_uid=info.operator_uid,
        subtask=info.index,
        key="" if key is None else shown(key),
        method=_method_name(function, method, error),
        reason=_told(error),
        row="" if row is None else shown(row, _LONGEST_ROW),
        file=file,
        line=line,
    )


def _beginning(function: OperatorFunction, method: str) -> tuple[str, int]:
    """Where the user's method begins; empty and 0 where it is not one of the user's."""
    users = getattr(function, method, None)
    code = None if isinstance(function, WindowOperator) else getattr(users, "__code__", None)
    return ("", 0) if code is None else (code.co_filename, code.co_firstlineno)


def misfit_of(
    function: OperatorFunction, info: SubtaskInfo, error: OutputTypeError
) -> UserFunctionError:
    """The error to raise for an output row of which nobody knows any more what has led to it."""
    places = yielding_places(function)
    if places:
        error.file, error.line = places[0].file, places[0].line
    methods = " or ".join(_yielding(function)) or "process_element"
    return failure_of(function, methods, info, error)


def yielding_places(function: OperatorFunction) -> list[Place]:
    """Where a function's methods yield rows."""
    return [place for place in map(place_of_method, _yielding(function).values()) if place]


def users_method_of(function: OperatorFunction, method: str) -> Callable[..., Any] | None:
    """The user's own method behind one of a function's; None where all is ours."""
    if isinstance(function, WindowOperator):
        return function.users_function
    users: Callable[..., Any] = getattr(function, method)
    return users


def _yielding(function: OperatorFunction) -> dict[str, Callable[..., Any]]:
    """The user's methods that give rows, by name."""
    if isinstance(function, WindowOperator):
        users = function.users_function
        return {} if users is None else {"on_timer": users}
    kind: Any = type(function)
    methods = ("process_element", "process_batch", *INPUTS, "on_timer")
    names = [name for name in methods if hasattr(kind, name)]
    return {
        name: getattr(function, name)
        for name in names
        if getattr(kind, name) is not getattr(KeyedFunction, name, None)
        and gives_rows(getattr(kind, name))
    }


def _method_name(function: OperatorFunction, method: str, error: BaseException) -> str:
    """The method's name with its class; in windows that of the user's part that has failed."""
    if isinstance(function, WindowOperator):
        users = function.users_function
        if isinstance(error, FunctionResultError):
            found = error.method.rpartition("<locals>.")[2]
        elif isinstance(error, OutputTypeError):
            found = getattr(users, "__qualname__", "").rpartition("<locals>.")[2]
        else:
            found = users_method(error)
        if found:
            return found
    return f"{type(function).__name__}.{method}"


def _told(error: BaseException) -> str:
    if isinstance(error, FunctionResultError):
        return str(error)
    if isinstance(error, OutputTypeError):
        return error.fault
    if isinstance(error, AttributeError) and isinstance(error.obj, Row):
        return f"AttributeError: {unknown_column(error.name or '', error.obj)}"
    hint = hint_for(error)
    return f"{type(error).__name__}: {said(error)}" + (hint and f" ({hint})")
