"""Evictors, and aggregates that take an evicted element back. Names and rules are Flink's."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from datetime import date, datetime, timedelta
from itertools import compress, islice
from operator import is_, not_
from typing import Any, Generic, NamedTuple, Protocol

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import INT64, typed, within
from millpond.functions.timer_service import MIN_TIMESTAMP
from millpond.functions.user_code import result_error
from millpond.functions.windows.window import NameOf, TimeWindow, milliseconds
from millpond.state import AggregateFunction
from millpond.types.rows import Row

T = TypeVar("T", default=Any)


class TimestampedValue(NamedTuple):
    """An element of a window: its event time in ms (MIN_TIMESTAMP where it has none), its value."""

    timestamp: int
    value: Any

    def has_timestamp(self) -> bool:
        """Whether the element has an event time."""
        return self.timestamp != MIN_TIMESTAMP


class EvictorContext(Protocol):
    """What an evictor works with."""

    def get_current_watermark(self) -> int:
        """The watermark in ms."""

    def get_current_processing_time(self) -> int:
        """The processing time in ms."""


class Evictor:
    """Drops elements of a window that fires, before or after its function is called.

    Both methods get the elements in the order in which they came and return those that stay.
    """

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        """What stays for the window's function; by default all."""
        return elements

    def evict_after(
        self, elements: list[TimestampedValue], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        """What stays for the next time that the window fires; by default all."""
        return elements


def elements_left(method: Callable[..., Any], *given: Any) -> list[TimestampedValue]:
    """Call a method of an evictor and return the list of the remaining elements.

    Raises:
        FunctionResultError: a user's method returned something else.
    """
    elements = method(*given)
    if not isinstance(elements, Iterable):
        raise result_error(method, elements, "a list of the elements that stay")
    left = elements if type(elements) is list else list(elements)
    if method.__module__ != Evictor.__module__:
        for element in left:
            if not isinstance(element, TimestampedValue):
                expected = "nothing but elements of type TimestampedValue"
                raise result_error(method, element, expected, among=True)
    return left


@attrs.frozen
class _Evicting(Evictor):
    """Evicts by one rule, before the function or after it."""

    do_evict_after: bool = attrs.field(default=False, validator=typed(bool), kw_only=True)

    def _stay(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
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
        """The evictor; named as in Flink."""
        return cls(max_count, do_evict_after=do_evict_after)

    @override
    def _stay(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        return elements[max(0, len(elements) - self.max_count) :]


@attrs.frozen
class TimeEvictor(_Evicting):
    """Keeps the elements of the last ``size`` ms, counted back from the newest one."""

    size: int = attrs.field(validator=within(0, INT64[1]))

    @classmethod
    def of(cls, size: timedelta | int, *, do_evict_after: bool = False) -> TimeEvictor:
        """The evictor; named as in Flink. ConfigError where the size is negative."""
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
    """Keeps the elements that differ from the last one by less than a threshold, or by NaN.

    Attributes:
        threshold: the difference from which an element goes.
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
        """The evictor; named as in Flink."""
        return cls(threshold, delta_function, do_evict_after=do_evict_after)

    @override
    def _stay(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        if not elements:
            return elements
        last, delta = elements[-1].value, self.delta_function
        # Written so that an element goes only where the difference is as great: NaN is not.
        return [each for each in elements if not delta(each.value, last) >= self.threshold]


@attrs.frozen
class Eviction:
    """How a window with an evictor fires.

    Attributes:
        evictor: drops elements.
        result: makes of the values that are left what the window's function gets; None where
            there is nothing to call it for.
        retracting: what ``result`` aggregates by, where that can retract.
    """

    evictor: Evictor
    result: Callable[[Sequence[Any]], Any]
    retracting: AggregateFunction | None = None


_MOST = 1000
"""So many windows are remembered; of others all elements are aggregated anew."""
_EXACT = frozenset({str, int, bool, bytes, date, datetime, uuid.UUID, type(None)})
"""Keys of these types are the same exactly when Python calls them equal."""


def can_retract(function: AggregateFunction) -> bool:
    """Whether a function defines ``retract``."""
    return type(function).retract is not AggregateFunction.retract


class RunningAggregates:
    """What the elements of windows come to, brought up to date at each firing.

    It lives as long as its operator and is no state: the first firing of a window after a restore,
    on Spark in a micro-batch, aggregates all its elements. An accumulator covers the first elements
    of a window's list, in their order.

    Args:
        function: that can retract.
        name_of: by what two windows are the same.
    """

    def __init__(self, function: AggregateFunction, name_of: NameOf) -> None:
        self._function = function
        self._name_of = name_of
        self._known: OrderedDict[tuple[Any, Any], tuple[Any, int]] = OrderedDict()

    def result(
        self,
        key: Any,
        namespace: TimeWindow,
        given: Sequence[TimestampedValue],
        left: Sequence[TimestampedValue],
    ) -> Any:
        """The result of what an evictor has left of a window's elements."""
        function, stay = self._function, _staying(given, left)
        accumulator, covered = self._taken(key, namespace)
        if not covered or not left or stay is None:
            accumulator = function.create_accumulator()
            for element in left:
                accumulator = function.add(element.value, accumulator)
        else:
            for element, stays in zip(given[covered:], stay[covered:], strict=True):
                if stays:
                    accumulator = function.add(element.value, accumulator)
            accumulator = self._without(accumulator, given[:covered], stay)
        if stay is not None:
            self._remember(key, namespace, accumulator, len(left))
        return function.get_result(deepcopy(accumulator))

    def evicted(
        self,
        key: Any,
        namespace: TimeWindow,
        left: Sequence[TimestampedValue],
        kept: Sequence[TimestampedValue],
    ) -> None:
        """An evictor has dropped more after the firing."""
        stay = _staying(left, kept)
        if stay is not None and all(stay):
            return
        accumulator, covered = self._taken(key, namespace)
        if covered and stay is not None:
            accumulator = self._without(accumulator, left, stay)
            self._remember(key, namespace, accumulator, len(kept))

    def forget(self, key: Any, *namespaces: TimeWindow) -> None:
        """The elements of these windows have been dropped, or put together."""
        if _exact(key):
            for namespace in namespaces:
                self._known.pop((key, self._name_of(namespace)), None)

    def _taken(self, key: Any, namespace: TimeWindow) -> tuple[Any, int]:
        """The accumulator of a window and how many elements it covers: 0 where none is known."""
        nothing = (None, 0)
        return self._known.pop((key, self._name_of(namespace)), nothing) if _exact(key) else nothing

    def _without(
        self, accumulator: Any, elements: Sequence[TimestampedValue], stay: Sequence[bool]
    ) -> Any:
        for element in compress(elements, map(not_, stay)):
            accumulator = self._function.retract(element.value, accumulator)
        return accumulator

    def _remember(self, key: Any, namespace: TimeWindow, accumulator: Any, count: int) -> None:
        if _exact(key):
            self._known[key, self._name_of(namespace)] = (accumulator, count)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)


def _exact(key: Any) -> bool:
    if type(key) is tuple or isinstance(key, Row):
        return all(map(_exact, tuple(key)))
    return type(key) in _EXACT


def _staying(
    given: Sequence[TimestampedValue], left: Sequence[TimestampedValue]
) -> list[bool] | None:
    """Which elements an evictor has left; None where it gave others, or another order."""
    gone = len(given) - len(left)
    if gone >= 0 and all(map(is_, islice(given, gone, None), left)):  # a loop in C
        return [False] * gone + [True] * len(left)
    stay, at = [], 0
    for element in given:
        stays = at < len(left) and element is left[at]
        stay.append(stays)
        at += stays
    return stay if at == len(left) else None
