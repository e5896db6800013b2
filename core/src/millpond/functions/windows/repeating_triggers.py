"""Triggers that fire before a window's end: every interval, by a difference, after a timeout.

Names and rules are Flink's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Generic, Self

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import INT64, check_type, typed, within
from millpond.functions.row_conversion import selector
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.functions.user_code import call_without_rows
from millpond.functions.windows.triggers import (
    OnMergeContext,
    Trigger,
    TriggerContext,
    TriggerResult,
    decision,
    fire_at_end,
)
from millpond.functions.windows.window import TimeWindow, milliseconds
from millpond.state import ReducingStateDescriptor, ValueStateDescriptor
from millpond.types import DeclaredType

T = TypeVar("T", default=Any)

_NEXT = ReducingStateDescriptor("trigger-fire-time", min, int)
_TIMEOUT = ValueStateDescriptor("trigger-timeout", int)


@attrs.frozen
class _Continuous(Trigger):
    """A trigger that fires at multiples of an interval. It stores the next time to fire."""

    interval: int = attrs.field(validator=within(1, INT64[1]))

    _by_event: ClassVar[bool]

    @classmethod
    def of(cls, interval: timedelta | int) -> Self:
        """Return the trigger; raise ConfigError if the interval is not positive.

        An int is a number of ms.
        """
        return cls(milliseconds(interval, "interval", least=1, place=cls.__name__))

    def _register(self, time: int, ctx: TriggerContext) -> None:
        if self._by_event:
            ctx.register_event_time_timer(time)
        else:
            ctx.register_processing_time_timer(time)

    def _begin(self, now: int, end: int, ctx: TriggerContext) -> None:
        """Set the window's first timer, at the next multiple of the interval, if none is set."""
        if ctx.get_partitioned_state(_NEXT).get() is None:
            # As in Flink, times are rounded towards 1970, even those before it.
            begun = abs(now) // self.interval * self.interval
            self._wait_for(min((begun if now >= 0 else -begun) + self.interval, end), ctx)

    def _following(self, time: int, end: int, ctx: TriggerContext) -> int:
        """Return the next time to fire, after the window has fired at a time before its end."""
        return min(time + self.interval, end)

    def _wait_for(self, time: int, ctx: TriggerContext) -> None:
        """Store the next time to fire, and set a timer for it."""
        ctx.get_partitioned_state(_NEXT).add(time)
        self._register(time, ctx)

    def _fire_if_due(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """Return FIRE if ``time`` is the window's end or the stored time to fire.

        At the stored time, also store the next time to fire, and set a timer for it.
        """
        end = window.max_timestamp()
        if time == end:
            return TriggerResult.FIRE
        following = ctx.get_partitioned_state(_NEXT)
        if following.get() != time:
            return TriggerResult.CONTINUE
        following.clear()
        self._wait_for(self._following(time, end, ctx), ctx)
        return TriggerResult.FIRE

    @override
    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_NEXT)
        following = ctx.get_partitioned_state(_NEXT).get()
        if following is not None:
            self._register(following, ctx)

    @override
    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        following = ctx.get_partitioned_state(_NEXT)
        time = following.get()
        if time is not None:
            if self._by_event:
                ctx.delete_event_time_timer(time)
            else:
                ctx.delete_processing_time_timer(time)
            following.clear()


class ContinuousEventTimeTrigger(_Continuous):
    """Fires each time the watermark has moved by an interval, and at the window's end.

    The intervals begin with the first row that has an event time. A window without an end fires
    once more when the input has ended.
    """

    _by_event = True

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        result = fire_at_end(window, ctx)
        # Flink would begin at MIN_TIMESTAMP for a row without a time, and fire for ever.
        if result is TriggerResult.CONTINUE and timestamp != MIN_TIMESTAMP:
            self._begin(timestamp, window.max_timestamp(), ctx)
        return result

    @override
    def _following(self, time: int, end: int, ctx: TriggerContext) -> int:
        # Flink would fire for ever: before MAX_TIMESTAMP there is always one more interval.
        if end == MAX_TIMESTAMP == ctx.get_current_watermark():
            return end
        return super()._following(time, end, ctx)

    @override
    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return self._fire_if_due(time, window, ctx)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires each time the clock has moved by an interval, and when it has passed the window's end.

    The firing at the end is the last one, even if an event-time window is open longer. If the clock
    has passed the end before the first row, the window fires once, after that row.
    """

    _by_event = False

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        self._begin(ctx.get_current_processing_time(), window.max_timestamp(), ctx)
        return TriggerResult.CONTINUE

    @override
    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self._fire_if_due(time, window, ctx)


@attrs.frozen
class DeltaTrigger(Trigger, Generic[T]):
    """Fires when an element differs by more than a threshold from the element of the last firing.

    It does not fire at the first element of a window, nor if the difference is NaN.

    Attributes:
        threshold: the greatest difference that does not fire.
        delta_function: ``f(remembered, new)``, the difference as a number.
        element_type: the type of the remembered value.
        value: the value to remember: a field of the row, or a function of the row.
    """

    threshold: float = attrs.field(validator=typed(int | float))
    delta_function: Callable[[T, T], float] = attrs.field(validator=typed(Callable))
    element_type: DeclaredType[T]
    value: str | Callable[[Any], T]
    _select: Callable[[Any], T] = attrs.field(init=False)
    _last: ValueStateDescriptor[T] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_select", selector(self.value, "value"))
        last = ValueStateDescriptor("trigger-last-element", self.element_type)
        object.__setattr__(self, "_last", last)

    @classmethod
    def of(
        cls,
        threshold: float,
        delta_function: Callable[[T, T], float],
        element_type: DeclaredType[T],
        value: str | Callable[[Any], T],
    ) -> DeltaTrigger[T]:
        """Return the trigger. Flink has a serializer instead of ``element_type``."""
        return cls(threshold, delta_function, element_type, value)

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        last = ctx.get_partitioned_state(self._last)
        remembered, new = last.value(), self._select(element)
        # `not … >` also holds for a difference of NaN, which changes nothing.
        if remembered is not None and not self.delta_function(remembered, new) > self.threshold:
            return TriggerResult.CONTINUE
        last.update(new)
        return TriggerResult.CONTINUE if remembered is None else TriggerResult.FIRE

    @override
    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()


@attrs.frozen
class ProcessingTimeoutTrigger(Trigger):
    """Fires when an inner trigger fires, and when elements have waited for a timeout.

    Attributes:
        inner: the inner trigger.
        timeout: the ms of processing time between the first element after a firing and the next
            firing.
        reset_timer_on_new_record: whether the timeout begins again with each element.
        should_clear_on_timeout: whether the timeout clears the inner trigger's state.
    """

    inner: Trigger = attrs.field(validator=typed(Trigger))
    timeout: int = attrs.field(validator=within(1, INT64[1]))
    reset_timer_on_new_record: bool = attrs.field(default=False, validator=typed(bool))
    should_clear_on_timeout: bool = attrs.field(default=True, validator=typed(bool))

    @classmethod
    def of(
        cls,
        inner: Trigger,
        timeout: timedelta | int,
        reset_timer_on_new_record: bool = False,  # noqa: FBT001, FBT002 - Flink's signature
        should_clear_on_timeout: bool = True,  # noqa: FBT001, FBT002 - Flink's signature
    ) -> ProcessingTimeoutTrigger:
        """Return the trigger, as in Flink; raise ConfigError if the timeout is not positive."""
        check_type("inner", inner, Trigger)
        length = milliseconds(timeout, "timeout", least=1, place=cls.__name__)
        return cls(inner, length, reset_timer_on_new_record, should_clear_on_timeout)

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        result = self.inner.on_element(element, timestamp, window, ctx)
        if decision(self.inner, "on_element", result).is_fire():
            self.clear(window, ctx)
            return result
        timeout = ctx.get_partitioned_state(_TIMEOUT)
        waiting = timeout.value()
        if waiting is not None and self.reset_timer_on_new_record:
            ctx.delete_processing_time_timer(waiting)
            waiting = None
        if waiting is None:
            following = min(ctx.get_current_processing_time() + self.timeout, MAX_TIMESTAMP)
            timeout.update(following)
            ctx.register_processing_time_timer(following)
        return result

    @override
    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        result = self.inner.on_event_time(time, window, ctx)
        return self._timed_out(decision(self.inner, "on_event_time", result), window, ctx)

    @override
    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        result = self.inner.on_processing_time(time, window, ctx)
        return self._timed_out(decision(self.inner, "on_processing_time", result), window, ctx)

    def _timed_out(
        self, result: TriggerResult, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Return FIRE, with PURGE if the inner trigger's ``result`` has it."""
        if self.should_clear_on_timeout:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge() else TriggerResult.FIRE

    @override
    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        timeout = ctx.get_partitioned_state(_TIMEOUT)
        waiting = timeout.value()
        if waiting is not None:
            ctx.delete_processing_time_timer(waiting)
            timeout.clear()
        call_without_rows(self.inner.clear, window, ctx)
