"""The contents of windows: evictors, and the function that gets the contents of a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import INT64, check_type, typed, within
from millpond.errors import StateConflictError, WindowStateError
from millpond.functions.functions import RuntimeContext
from millpond.functions.timer_service import MIN_TIMESTAMP, TimerService
from millpond.functions.user_code import result_error, rows_of
from millpond.functions.windows.window import GLOBAL_WINDOW, TimeWindow, milliseconds
from millpond.state import State, StateDescriptor

CONTENTS = "window-contents"
"""The name of the state that holds the contents of windows."""

IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
K = TypeVar("K", default=Any)
T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
S = TypeVar("S", bound=State, default=Any)


# ---------------------------------------------------------------- evictors


class TimestampedValue(NamedTuple):
    """An element of a window: its event time in ms (MIN_TIMESTAMP without one) and its value."""

    timestamp: int
    value: Any

    def has_timestamp(self) -> bool:
        """Return whether the element has an event time."""
        return self.timestamp != MIN_TIMESTAMP


class EvictorContext(Protocol):
    """The context of an evictor: the watermark and the processing time."""

    def get_current_watermark(self) -> int:
        """Return the watermark in ms."""

    def get_current_processing_time(self) -> int:
        """Return the processing time in ms."""


class Evictor:
    """Drops elements of a window that fires, before or after its function is called.

    Both methods get the elements in the order in which they came and return the remaining ones.
    """

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        """Return the elements for the window's function; by default all."""
        return elements

    def evict_after(
        self, elements: list[TimestampedValue], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        """Return the elements for the next firing of the window; by default all."""
        return elements


def elements_left(method: Callable[..., Any], *given: Any) -> list[TimestampedValue]:
    """Call an evictor's method with the arguments ``given``; return the remaining elements.

    Raises:
        FunctionResultError: a user's method returned something else.
    """
    elements = method(*given)
    if not isinstance(elements, Iterable):
        raise result_error(method, elements, "a list of the remaining elements")
    left = elements if type(elements) is list else list(elements)
    if method.__module__ != Evictor.__module__:
        for element in left:
            if not isinstance(element, TimestampedValue):
                expected = "nothing but elements of type TimestampedValue"
                raise result_error(method, element, expected, among=True)
    return left


@attrs.frozen
class _Evicting(Evictor):
    """An evictor that applies one rule, before or after the function of the window."""

    do_evict_after: bool = attrs.field(default=False, validator=typed(bool), kw_only=True)

    def _stay(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        """Return the elements that are not dropped."""
        raise NotImplementedError

    @override
    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        return elements if self.do_evict_after else self._stay(elements)

    @override
    def evict_after(
        self, elements: list[TimestampedValue], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        return self._stay(elements) if self.do_evict_after else elements


@attrs.frozen
class CountEvictor(_Evicting):
    """Keeps the last ``max_count`` elements."""

    max_count: int = attrs.field(validator=within(0, INT64[1]))

    @classmethod
    def of(cls, max_count: int, *, do_evict_after: bool = False) -> CountEvictor:
        """Return the evictor; named as in Flink."""
        return cls(max_count, do_evict_after=do_evict_after)

    @override
    def _stay(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        return elements[max(0, len(elements) - self.max_count) :]


@attrs.frozen
class TimeEvictor(_Evicting):
    """Keeps the elements that are less than ``size`` ms older than the newest element.

    Elements without event times are all kept.
    """

    size: int = attrs.field(validator=within(0, INT64[1]))

    @classmethod
    def of(cls, size: timedelta | int, *, do_evict_after: bool = False) -> TimeEvictor:
        """Return the evictor, as in Flink; raise ConfigError if the size is negative."""
        length = milliseconds(size, "size", least=0, place=cls.__name__)
        return cls(length, do_evict_after=do_evict_after)

    @override
    def _stay(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        if not elements or not elements[0].has_timestamp():
            return elements
        cutoff = max(element.timestamp for element in elements) - self.size
        return [element for element in elements if element.timestamp > cutoff]


@attrs.frozen
class DeltaEvictor(_Evicting, Generic[T]):
    """Keeps the elements whose difference from the last element is below a threshold, or NaN.

    Attributes:
        threshold: the smallest difference for which an element is dropped.
        delta_function: ``f(element, last)``, the difference as a number.
    """

    threshold: float = attrs.field(validator=typed(int | float))
    delta_function: Callable[[T, T], float] = attrs.field(validator=typed(Callable))

    @classmethod
    def of(
        cls,
        threshold: float,
        delta_function: Callable[[T, T], float],
        *,
        do_evict_after: bool = False,
    ) -> DeltaEvictor[T]:
        """Return the evictor; named as in Flink."""
        return cls(threshold, delta_function, do_evict_after=do_evict_after)

    @override
    def _stay(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        if not elements:
            return elements
        last, delta = elements[-1].value, self.delta_function
        # `not … >=` keeps an element whose difference is NaN; `<` would drop it.
        return [each for each in elements if not delta(each.value, last) >= self.threshold]


# ---------------------------------------------------------------- functions


class WindowStates:
    """The states of a window's function: states of one window, and states of all windows of a key.

    A state name can be used only for one of the two.

    Args:
        runtime: the context of the operator.
        assigner: the name of the assigner if its windows merge, else None.
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
        """Return the state of ``window``; without a window, the state that a key's windows share.

        Raises:
            WindowStateError: the windows merge, so that none has a state of its own.
            StateConflictError: the name is used for the other kind of state, or by Millpond.
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
        """Return a state of the key and this window; the function's ``clear`` must drop it.

        Raises:
            WindowStateError: the windows merge, so that none has a state of its own.
        """
        return self._states.get_state(descriptor, self.window)

    def global_state(self, descriptor: StateDescriptor[S]) -> S:
        """Return a state of the key, which all its windows share."""
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
        """Drop the ``window_state`` of a window that is over."""

    def close(self) -> None:
        """Release the resources of ``open``; called after the last row, also after a failure."""


class _Plain(ProcessWindowFunction):
    """The default function of windows: outputs a row of the key, the window and the value.

    If one of the three is a tuple, its elements become columns: a time window becomes its start and
    its end in ms.
    """

    users = None

    @override
    def process(self, key: Any, context: WindowContext, elements: Any) -> Iterable[Any]:
        return [(*_parts(key), *_parts(context.window), *_parts(elements))]


def _parts(value: Any) -> tuple[Any, ...]:
    """Return the columns of a value: the elements of a tuple, or the value alone."""
    return tuple(value) if isinstance(value, tuple) else (value,)


class _ByCallable(ProcessWindowFunction):
    """Calls a plain function of key, window and contents."""

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
