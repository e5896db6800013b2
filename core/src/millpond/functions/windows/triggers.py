"""Triggers: when a window's function is called. Names and rules are PyFlink's."""

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
    """What a trigger wants: nothing, a call of the window's function, its elements dropped."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3

    def is_fire(self) -> bool:
        """Whether the window's function is to be called."""
        return TriggerResult.FIRE in self

    def is_purge(self) -> bool:
        """Whether the window's elements are to be dropped."""
        return TriggerResult.PURGE in self


def decision(trigger: Trigger, method: str, result: Any) -> TriggerResult:
    """What a method of a trigger has returned; FunctionResultError where it is no decision."""
    if isinstance(result, TriggerResult):
        return result
    raise result_error(getattr(trigger, method), result, "a TriggerResult")


class TriggerContext(Protocol):
    """What a trigger works with: time, timers and states of the current key and window."""

    def get_current_watermark(self) -> int:
        """The watermark in ms."""

    def get_current_processing_time(self) -> int:
        """The processing time in ms."""

    def register_event_time_timer(self, time: int) -> None:
        """Have ``on_event_time`` called for the window at a time in ms."""

    def register_processing_time_timer(self, time: int) -> None:
        """Have ``on_processing_time`` called for the window once the clock has passed a time."""

    def delete_event_time_timer(self, time: int) -> None:
        """Take such a call back."""

    def delete_processing_time_timer(self, time: int) -> None:
        """Take such a call back."""

    def get_partitioned_state(self, state_descriptor: StateDescriptor[S]) -> S:
        """A state of the trigger, of the current key and window."""


class OnMergeContext(TriggerContext, Protocol):
    """What ``on_merge`` works with: the merged window's context."""

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Join what the trigger kept for the windows that have become one.

        Raises:
            ConfigError: the state is neither a list nor a reducing or aggregating state.
        """


class Trigger(ABC):
    """Decides when a window fires; it holds nothing itself, so one serves all windows."""

    @abstractmethod
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """An element was added to a window.

        Args:
            element: the row.
            timestamp: the row's event time in ms, also in windows of processing time;
                MIN_TIMESTAMP where it has none.
            window: the window.
            ctx: the key's and the window's.
        """

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """The watermark has reached a registered time, or that at which the window is dropped."""
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """The clock has passed a registered time, or that at which the window is dropped."""
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Whether the trigger serves windows that merge: by default, if it defines ``on_merge``.

        Windows are refused when the job is built where it does not.
        """
        return type(self).on_merge is not Trigger.on_merge

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        """A window has come from several; join what was kept for them.

        Raises:
            ConfigError: the trigger does not serve windows that merge.
        """
        raise ConfigError("trigger", f"{type(self).__name__} cannot merge windows", "windows")

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """A window is over: drop what was kept for it."""


def fire_at_end(window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
    """Fire where the watermark has reached a window's end; else have a timer wait for it."""
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
        """The trigger; named as in Flink."""
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
        # Of a window that is past its end the element that joined it makes on_element fire.
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
        """The trigger; named as in Flink."""
        return cls()

    @override
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """An element never fires, the timer does."""
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
        """Nothing was kept."""


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
        """The trigger; named as in Flink. ConfigError where the count is not positive."""
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
    """Another trigger whose windows are emptied when they fire."""

    inner: Trigger = attrs.field(validator=typed(Trigger))

    @classmethod
    def of(cls, inner: Trigger) -> PurgingTrigger:
        """The trigger; named as in Flink."""
        return cls(inner)

    @override
    def can_merge(self) -> bool:
        """Whether the other trigger does."""
        return self.inner.can_merge()

    def _purging(self, method: str, result: TriggerResult) -> TriggerResult:
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
