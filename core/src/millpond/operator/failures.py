"""From an exception in a user's function to an error that says where, with what row, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import FunctionResultError, OutputTypeError, UserFunctionError, said, shown
from millpond.functions.co_process import INPUTS
from millpond.functions.functions import KeyedFunction, OperatorFunction, SubtaskInfo
from millpond.functions.user_code import Place, gives_rows, place_of_method
from millpond.functions.user_frames import place_of, users_method
from millpond.functions.windows.window_operator import WindowOperator
from millpond.operator.hints import hint_for
from millpond.types.rows import Row, unknown_column

__all__ = ["failure_of", "misfit_of", "users_method_of", "yielding_places"]

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
