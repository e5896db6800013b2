"""Triggers decide when a window's function is called. Names and rules are PyFlink's."""

from __future__ import annotations

import enum
import operator
from abc import ABC, abstractmethod
from typing import Any, Protocol

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import typed
from millpond.errors import ConfigError, brief
from millpond.functions.user_code import call_without_rows, result_error
from millpond.functions.windows.window import TimeWindow
from millpond.state import ReducingStateDescriptor, State, StateDescriptor

S = TypeVar("S", bound=State, default=Any)


class TriggerResult(enum.Flag):
    """A trigger's decision: CONTINUE does nothing, FIRE calls the window's function.

    PURGE drops the window's elements. FIRE_AND_PURGE calls the function, then drops the elements.
    """

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3

    def is_fire(self) -> bool:
        """Return whether to call the window's function."""
        return TriggerResult.FIRE in self

    def is_purge(self) -> bool:
        """Return whether to drop the window's elements."""
        return TriggerResult.PURGE in self


def decision(trigger: Trigger, method: str, result: Any) -> TriggerResult:
    """Return ``result``, which the method ``method`` of a trigger returned.

    Raises:
        FunctionResultError: ``result`` is not a TriggerResult.
    """
    if isinstance(result, TriggerResult):
        return result
    raise result_error(getattr(trigger, method), result, "a TriggerResult")


class TriggerContext(Protocol):
    """The context of a trigger: the time, and timers and states of the current key and window."""

    def get_current_watermark(self) -> int:
        """Return the watermark in ms."""

    def get_current_processing_time(self) -> int:
        """Return the processing time in ms."""

    def register_event_time_timer(self, time: int) -> None:
        """Set a timer that calls ``on_event_time`` once the watermark reaches ``time``, in ms."""

    def register_processing_time_timer(self, time: int) -> None:
        """Set a timer that calls ``on_processing_time`` once the clock passes ``time``, in ms."""

    def delete_event_time_timer(self, time: int) -> None:
        """Remove the window's event-time timer for ``time``."""

    def delete_processing_time_timer(self, time: int) -> None:
        """Remove the window's processing-time timer for ``time``."""

    def get_partitioned_state(self, state_descriptor: StateDescriptor[S]) -> S:
        """Return a state of the trigger, for the current key and window."""


class OnMergeContext(TriggerContext, Protocol):
    """The context of ``on_merge``, for a window that other windows were merged into."""

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge the trigger's states of the old windows into its state of the merged window.

        Raises:
            ConfigError: the state is neither a list nor a reducing or aggregating state.
        """


class Trigger(ABC):
    """Decides when a window fires. A trigger serves all windows, so it must hold no data."""

    @abstractmethod
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Return the decision after an element was added to a window.

        Args:
            element: the row.
            timestamp: the row's event time in ms, even in windows of processing time;
                MIN_TIMESTAMP if the row has no event time.
            window: the window.
            ctx: the context of the key and the window.
        """

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """Return the decision after the watermark has reached the time of a timer.

        This method is also called at the clean-up time, at which the window is dropped.
        """
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Return the decision after the clock has passed the time of a timer.

        This method is also called at the clean-up time, at which the window is dropped.
        """
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Return whether the trigger supports merging windows; by default, if it has ``on_merge``.

        If it does not support them, creating a job with merging windows raises ConfigError.
        """
        return type(self).on_merge is not Trigger.on_merge

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        """Merge the trigger's state after several windows have been merged.

        Raises:
            ConfigError: the trigger does not support merging windows.
        """
        raise ConfigError("trigger", f"{type(self).__name__} cannot merge windows", "windows")

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """Drop the trigger's state of ``window``, which is over."""


def fire_at_end(window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
    """Return FIRE if the watermark has reached the window's end; else set a timer for the end."""
    end = window.max_timestamp()
    if end <= ctx.get_current_watermark():
        return TriggerResult.FIRE
    ctx.register_event_time_timer(end)
    return TriggerResult.CONTINUE


@attrs.frozen
class EventTimeTrigger(Trigger):
    """Fires when the watermark reaches the window's end, then at each late element."""

    @classmethod
    def create(cls) -> EventTimeTrigger:
        """Return the trigger; named as in Flink."""
        return cls()

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return fire_at_end(window, ctx)

    @override
    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        due = time == window.max_timestamp()
        return TriggerResult.FIRE if due else TriggerResult.CONTINUE

    @override
    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        # If the window is past its end, on_element fires for the element that caused the merge.
        end = window.max_timestamp()
        if end > ctx.get_current_watermark():
            ctx.register_event_time_timer(end)

    @override
    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


@attrs.frozen
class ProcessingTimeTrigger(Trigger):
    """Fires when the processing time has passed the window's end."""

    @classmethod
    def create(cls) -> ProcessingTimeTrigger:
        """Return the trigger; named as in Flink."""
        return cls()

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    @override
    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE

    @override
    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        end = window.max_timestamp()
        if end > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(end)

    @override
    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


@attrs.frozen
class NeverTrigger(Trigger):
    """Never fires."""

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    @override
    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        """Do nothing: there is no state."""


_COUNT = ReducingStateDescriptor("trigger-count", operator.add, int)


@attrs.frozen
class CountTrigger(Trigger):
    """Fires after every n-th element of a window."""

    max_count: int = attrs.field(validator=typed(int))

    def __attrs_post_init__(self) -> None:
        if self.max_count < 1:
            reason = f"{brief(self.max_count)} is not positive"
            raise ConfigError("max_count", reason, "CountTrigger.of")

    @classmethod
    def of(cls, max_count: int) -> CountTrigger:
        """Return the trigger, as in Flink; raise ConfigError if the count is not positive."""
        return cls(max_count)

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        count = ctx.get_partitioned_state(_COUNT)
        count.add(1)
        if (count.get() or 0) < self.max_count:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    @override
    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    @override
    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()


@attrs.frozen
class PurgingTrigger(Trigger):
    """Fires when an inner trigger fires, and then drops the window's elements."""

    inner: Trigger = attrs.field(validator=typed(Trigger))

    @classmethod
    def of(cls, inner: Trigger) -> PurgingTrigger:
        """Return the trigger; named as in Flink."""
        return cls(inner)

    @override
    def can_merge(self) -> bool:
        """Return whether the inner trigger supports merging windows."""
        return self.inner.can_merge()

    def _purging(self, method: str, result: TriggerResult) -> TriggerResult:
        """Return ``result``, the result of the inner trigger; add PURGE if it contains FIRE."""
        if result is TriggerResult.CONTINUE:
            return result
        fires = decision(self.inner, method, result).is_fire()
        return TriggerResult.FIRE_AND_PURGE if fires else result

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        result = self.inner.on_element(element, timestamp, window, ctx)
        return self._purging("on_element", result)

    @override
    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return self._purging("on_event_time", self.inner.on_event_time(time, window, ctx))

    @override
    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        result = self.inner.on_processing_time(time, window, ctx)
        return self._purging("on_processing_time", result)

    @override
    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        call_without_rows(self.inner.on_merge, window, ctx)

    @override
    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        call_without_rows(self.inner.clear, window, ctx)
