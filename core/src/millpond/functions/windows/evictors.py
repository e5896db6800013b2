"""Evictors: they drop elements of a window when it fires. Names and rules are Flink's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, NamedTuple, Protocol

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import INT64, typed, within
from millpond.functions.timer_service import MIN_TIMESTAMP
from millpond.functions.user_code import result_error
from millpond.functions.windows.window import TimeWindow, milliseconds

T = TypeVar("T", default=Any)


class TimestampedValue(NamedTuple):
    """An element of a window: its event time in ms, or MIN_TIMESTAMP, and its value."""

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
    """Drops elements of a window that fires, before or after the window's function is called.

    Both methods get the elements in the order in which they came. They return the elements that
    remain.
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
        FunctionResultError: the method returned an object that cannot be iterated over, such as
            None.
    """
    elements = method(*given)
    if not isinstance(elements, Iterable):
        raise result_error(method, elements, "a list of the remaining elements")
    return elements if type(elements) is list else list(elements)


@attrs.frozen
class _Evicting(Evictor):
    """An evictor that drops elements either before or after the window's function is called."""

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
    """Keeps an element if its difference from the last element is below a threshold, or is NaN.

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
