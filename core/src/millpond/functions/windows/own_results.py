"""What users' own assigners, triggers and evictors return; errors name the class and method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, get_origin

from millpond.errors import FunctionResultError
from millpond.functions.results import refusal
from millpond.functions.windows.assigners import WindowAssigner
from millpond.functions.windows.evictors import Evictor, TimestampedValue

__all__ = ["elements_left", "is_ours", "windows_of"]


def is_ours(assigner: WindowAssigner) -> bool:
    """Whether Millpond's own method assigns elements to windows.

    By the class that has it: a method of the user's may be decorated to look like ours.
    """
    owner = next(kind for kind in type(assigner).__mro__ if "assign_windows" in vars(kind))
    return owner.__module__ == WindowAssigner.__module__


def windows_of(assigner: WindowAssigner) -> Callable[[Any, int], Collection[Any]]:
    """What assigns an element at a time in ms to windows: no generator, which is gone through once.

    That of Millpond's own assigners is their method itself, whose result needs no check.
    """
    method = assigner.assign_windows
    kind: type[Any] = get_origin(assigner.window_type) or assigner.window_type
    if is_ours(assigner):
        return method

    def assign(element: Any, timestamp: int) -> Collection[Any]:
        windows = method(element, timestamp)
        if type(windows) is not list and type(windows) is not tuple:
            if not isinstance(windows, Iterable) or isinstance(windows, kind):
                raise refusal(method, windows, "a list of windows")
            windows = list(windows)
        for window in windows:
            if not isinstance(window, kind):
                raise _wrong(method, window, f"nothing but windows of type {kind.__name__}")
        return windows

    return assign


def elements_left(method: Callable[..., Any], *given: Any) -> list[TimestampedValue]:
    """The list of what a method of an evictor leaves of what it is given."""
    elements = method(*given)
    if not isinstance(elements, Iterable):
        raise refusal(method, elements, "a list of the elements that stay")
    left = elements if type(elements) is list else list(elements)
    if method.__module__ != Evictor.__module__:
        for element in left:
            if not isinstance(element, TimestampedValue):
                raise _wrong(method, element, "nothing but elements of type TimestampedValue")
    return left


def _wrong(method: Callable[..., Any], found: Any, expected: str) -> FunctionResultError:
    """The error that names what there is among others that a method has returned."""
    error = refusal(method, found, expected)
    error.value += " among others"
    return error
