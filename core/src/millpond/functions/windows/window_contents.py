"""What a window keeps of its elements, and what becomes of it when the window fires."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeAlias

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.functions.functions import RuntimeContext
from millpond.functions.row_conversion import selector
from millpond.functions.timer_service import TimerService
from millpond.functions.user_code import rows_of
from millpond.functions.windows.evictors import Eviction, Evictor
from millpond.functions.windows.window import TimeWindow
from millpond.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    StateKind,
)
from millpond.types import DeclaredType

_NAME = "window-contents"

IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
K = TypeVar("K", default=Any)
T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
S = TypeVar("S", bound=State, default=Any)


@attrs.define
class WindowContext:
    """What a window's function gets.

    Attributes:
        window: the window that fires.
    """

    window: TimeWindow
    _timers: TimerService
    _state: Callable[[StateDescriptor, bool], Any]

    def current_watermark(self) -> int:
        """The watermark in ms."""
        return self._timers.current_watermark()

    def current_processing_time(self) -> int:
        """The processing time in ms."""
        return self._timers.current_processing_time()

    def window_state(self, descriptor: StateDescriptor[S]) -> S:
        """A state of the key and this window, to be dropped in ``clear``.

        Raises:
            WindowStateError: the windows merge, so that none has a state of its own.
        """
        check_type("descriptor", descriptor, StateDescriptor)
        state: S = self._state(descriptor, True)
        return state

    def global_state(self, descriptor: StateDescriptor[S]) -> S:
        """A state of the key, which all its windows share."""
        check_type("descriptor", descriptor, StateDescriptor)
        state: S = self._state(descriptor, False)
        return state


class ProcessWindowFunction(ABC, Generic[IN, OUT, K]):
    """A function over what a window holds when it fires.

    For type checkers it may be given the types of what a window holds, of what it yields and of
    the key, in Flink's order: ``ProcessWindowFunction[list[float], tuple[str, float], str]``.
    """

    def open(self, context: RuntimeContext) -> None:
        """Prepare; called once per subtask, before the first row."""

    @abstractmethod
    def process(self, key: K, context: WindowContext, elements: IN) -> Iterable[OUT]:
        """Turn a window's elements, or its one reduced or aggregated value, into output rows."""

    def clear(self, context: WindowContext) -> None:
        """The window is over: drop its ``window_state``."""

    def close(self) -> None:
        """Release what ``open`` acquired; called after the last row, also after a failure."""


class _Plain(ProcessWindowFunction):
    """Key, window and value, whose parts are spread; of a time window start and end in ms."""

    users = None

    @override
    def process(self, key: Any, context: WindowContext, elements: Any) -> Iterable[Any]:
        return [(*_parts(key), *_parts(context.window), *_parts(elements))]


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


class _ByCallable(ProcessWindowFunction):
    def __init__(self, function: Callable[[Any, TimeWindow, Any], Iterable[Any]]) -> None:
        self.users = self._function = function

    @override
    def process(self, key: Any, context: WindowContext, elements: Any) -> Iterable[Any]:
        return rows_of(self._function, self._function(key, context.window, elements))


WindowFunction: TypeAlias = (
    ProcessWindowFunction[IN, Any, Any] | Callable[[Any, TimeWindow, IN], Iterable[Any]]
)
"""A function of key, window and what the window holds, as an object or a callable."""


@attrs.frozen
class WindowContents:
    """How elements are kept, and the function of a window that fires.

    Attributes:
        descriptor: of the state that holds them, under the window as its namespace.
        select: what is kept of a row.
        function: called when a window fires.
        eviction: None where windows have no evictor. Else the state is a list of the elements
            with their times.
    """

    descriptor: StateDescriptor
    select: Callable[[Any], Any]
    function: ProcessWindowFunction
    eviction: Eviction | None = None

    def is_empty(self, held: Any) -> bool:
        """Whether the state holds nothing, so that there is nothing to fire."""
        return not held if self.descriptor.kind is StateKind.LIST else held is None


def as_window_function(given: WindowFunction[Any] | None) -> ProcessWindowFunction:
    """What was given as a window's function, or the plain one."""
    check_type("window_function", given, ProcessWindowFunction | Callable | None)
    if given is None:
        return _Plain()
    return given if isinstance(given, ProcessWindowFunction) else _ByCallable(given)


def users_own(function: ProcessWindowFunction) -> Callable[..., Any] | None:
    """What the user has written of a windows' function; None where it is all ours."""
    users: Callable[..., Any] | None = getattr(function, "users", function.process)
    return users


def _row(row: Any) -> Any:
    return row


def reduced(
    reduce_function: Callable[[T, T], T],
    value_type: DeclaredType[T],
    value: str | Callable[[Any], T],
    function: WindowFunction[T] | None,
) -> WindowContents:
    """Windows that keep one value, reduced."""
    descriptor = ReducingStateDescriptor(_NAME, reduce_function, value_type)
    return WindowContents(descriptor, selector(value, "value"), as_window_function(function))


def aggregated(
    aggregate_function: AggregateFunction[Any, ACC, OUT],
    accumulator_type: DeclaredType[ACC],
    value: str | Callable[[Any], Any] | None,
    function: WindowFunction[OUT] | None,
) -> WindowContents:
    """Windows that keep an accumulator, to which rows, or values of theirs, are added."""
    descriptor = AggregatingStateDescriptor(_NAME, aggregate_function, accumulator_type)
    select = _row if value is None else selector(value, "value")
    return WindowContents(descriptor, select, as_window_function(function))


def evicting(
    evictor: Evictor,
    element_type: DeclaredType[Any],
    value: str | Callable[[Any], Any],
    result: Callable[[Sequence[Any]], Any],
    function: WindowFunction[Any] | None,
    retracting: AggregateFunction | None = None,
) -> WindowContents:
    """Windows that keep all elements with their times, from which an evictor takes some."""
    timestamped: Any = tuple[int, element_type]  # type: ignore[valid-type]  # known at run time
    descriptor = ListStateDescriptor(_NAME, timestamped)
    select, eviction = selector(value, "value"), Eviction(evictor, result, retracting)
    return WindowContents(descriptor, select, as_window_function(function), eviction)


def kept(
    element_type: DeclaredType[T],
    value: str | Callable[[Any], T],
    function: WindowFunction[list[T]],
) -> WindowContents:
    """Windows that keep all elements."""
    check_type("window_function", function, ProcessWindowFunction | Callable)
    descriptor = ListStateDescriptor(_NAME, element_type)
    return WindowContents(descriptor, selector(value, "value"), as_window_function(function))
