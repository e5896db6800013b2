"""The contents of windows, and the function that gets them when a window fires."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.errors import StateConflictError, WindowStateError
from millpond.functions.functions import RuntimeContext
from millpond.functions.timer_service import TimerService
from millpond.functions.user_code import rows_of
from millpond.functions.windows.evictors import Evictor
from millpond.functions.windows.window import GLOBAL_WINDOW, TimeWindow
from millpond.state import State, StateDescriptor

CONTENTS = "window-contents"
"""The name of the state that holds the contents of windows."""

IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
K = TypeVar("K", default=Any)
S = TypeVar("S", bound=State, default=Any)


class WindowStates:
    """The states of a window's function: states of one window, and states of all windows of a key.

    The function cannot use one state name for both.

    Args:
        runtime: the context of the operator.
        assigner: the name of the assigner if the assigner's windows merge, else None.
        window_type: the type of the windows.
        own: the names of the states that the window operator itself uses.
    """

    def __init__(
        self, runtime: RuntimeContext, assigner: str | None, window_type: Any, own: Iterable[str]
    ) -> None:
        self._runtime = runtime
        self._merging = assigner
        self._window_type = window_type
        self._uses = dict.fromkeys(own, "the contents of windows")

    def get_state(self, descriptor: StateDescriptor[S], window: Any = None) -> S:
        """Return the state of ``window``; if it is None, the state of all windows of the key.

        Raises:
            WindowStateError: the windows merge, so a single window has no state.
            StateConflictError: the name is used by Millpond, or both with and without a window.
        """
        check_type("descriptor", descriptor, StateDescriptor)
        if window is not None and self._merging is not None:
            raise WindowStateError(descriptor.name, self._merging)
        # A name has one state object, so the other use would change the namespace of the first.
        use = "global_state" if window is None else "window_state"
        known = self._uses.setdefault(descriptor.name, use)
        if known != use:
            raise StateConflictError(descriptor.name, known, use)
        if window is None:
            return self._runtime.get_namespaced_state(descriptor, GLOBAL_WINDOW, TimeWindow)
        return self._runtime.get_namespaced_state(descriptor, window, self._window_type)


@attrs.define
class WindowContext:
    """The context of a window's function.

    Attributes:
        window: the window that fires.
    """

    window: TimeWindow
    _timers: TimerService
    _states: WindowStates

    def current_watermark(self) -> int:
        """Return the watermark in ms."""
        return self._timers.current_watermark()

    def current_processing_time(self) -> int:
        """Return the processing time in ms."""
        return self._timers.current_processing_time()

    def window_state(self, descriptor: StateDescriptor[S]) -> S:
        """Return a state of the key and this window; the function's ``clear`` must drop the state.

        Raises:
            WindowStateError: the windows merge, so a single window has no state.
        """
        return self._states.get_state(descriptor, self.window)

    def global_state(self, descriptor: StateDescriptor[S]) -> S:
        """Return a state of the key that all windows of the key share."""
        return self._states.get_state(descriptor)


class ProcessWindowFunction(ABC, Generic[IN, OUT, K]):
    """A function over the contents of a window that fires.

    Type checkers accept the types of the contents, of the output and of the key, in Flink's order:
    ``ProcessWindowFunction[list[float], tuple[str, float], str]``.
    """

    def open(self, context: RuntimeContext) -> None:
        """Prepare the function; called once per subtask, before the first row."""

    @abstractmethod
    def process(self, key: K, context: WindowContext, elements: IN) -> Iterable[OUT]:
        """Turn a window's elements, or its one reduced or aggregated value, into output rows."""

    def clear(self, context: WindowContext) -> None:
        """Drop the states from ``context.window_state`` of a window that is over."""

    def close(self) -> None:
        """Release the resources of ``open``; called after the last row, also after a failure."""


class _Plain(ProcessWindowFunction):
    """The default function of windows: outputs a row of the key, the window and the value.

    If the key, the window or the value is a tuple, each element of the tuple becomes a column. So a
    time window becomes two columns, its start and its end in ms.
    """

    users = None

    @override
    def process(self, key: Any, context: WindowContext, elements: Any) -> Iterable[Any]:
        return [(*_parts(key), *_parts(context.window), *_parts(elements))]


def _parts(value: Any) -> tuple[Any, ...]:
    """Return the columns of a value: the elements of a tuple, or the value alone."""
    return tuple(value) if isinstance(value, tuple) else (value,)


class _ByCallable(ProcessWindowFunction):
    """A window function that calls a plain function with the key, the window and the contents."""

    def __init__(self, function: Callable[[Any, TimeWindow, Any], Iterable[Any]]) -> None:
        self.users = self._function = function

    @override
    def process(self, key: Any, context: WindowContext, elements: Any) -> Iterable[Any]:
        return rows_of(self._function, self._function(key, context.window, elements))


WindowFunction: TypeAlias = (
    ProcessWindowFunction[IN, Any, Any] | Callable[[Any, TimeWindow, IN], Iterable[Any]]
)
"""A function of a key, a window and the window's contents, as an object or a callable."""


@attrs.frozen
class WindowContents:
    """The state that keeps the elements of windows, and the function of a window that fires.

    Attributes:
        descriptor: the descriptor of the state of the elements, with windows as namespaces.
        select: takes a row, and returns the value that windows keep.
        function: called when a window fires.
        evictor: drops elements when a window fires. With an evictor the state is a list of the
            elements with their times.
        result: turns the values that the evictor leaves into the argument of ``function``. If it
            returns None, the function is not called.
    """

    descriptor: StateDescriptor
    select: Callable[[Any], Any]
    function: ProcessWindowFunction
    evictor: Evictor | None = None
    result: Callable[[list[Any]], Any] = list


def as_window_function(given: WindowFunction[Any] | None) -> ProcessWindowFunction:
    """Return ``given`` as a ProcessWindowFunction; if it is None, return the default function."""
    check_type("window_function", given, ProcessWindowFunction | Callable | None)
    if given is None:
        return _Plain()
    return given if isinstance(given, ProcessWindowFunction) else _ByCallable(given)
