"""What users' own assigners, triggers and evictors return; errors name the class and method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from millpond.runtime.results import refusal
from millpond.runtime.windows.assigners import WindowAssigner
from millpond.runtime.windows.evictors import TimestampedValue

__all__ = ["elements_left", "is_ours", "windows_of"]


def is_ours(assigner: WindowAssigner) -> bool:
    """Whether Millpond's own method assigns elements to windows."""
    return assigner.assign_windows.__module__ == WindowAssigner.__module__


def windows_of(assigner: WindowAssigner) -> Callable[[Any, int], Collection[Any]]:
    """What assigns an element at a time in ms to windows: no generator, which is gone through once.

    That of Millpond's own assigners is their method itself, whose result needs no check.
    """
    method, kind = assigner.assign_windows, assigner.window_type
    if is_ours(assigner):
        return method

    def assign(element: Any, timestamp: int) -> Collection[Any]:
        windows = method(element, timestamp)
        if type(windows) is list or type(windows) is tuple:
            return windows
        if isinstance(windows, Iterable) and not isinstance(windows, kind):
            return list(windows)
        raise refusal(method, windows, "a list of windows")

    return assign


def elements_left(method: Callable[..., Any], *given: Any) -> list[TimestampedValue]:
    """The list of what a method of an evictor leaves of what it is given."""
    elements = method(*given)
    if not isinstance(elements, Iterable):
        raise refusal(method, elements, "a list of the elements that stay")
    return elements if type(elements) is list else list(elements)
