"""Triggers: when a window's function is called. Names and rules are Flink's."""

from __future__ import annotations

import enum
import operator
from abc import ABC, abstractmethod
from typing import Any, Protocol

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import typed
from millpond.errors import ConfigError, brief
from millpond.runtime.timer_service import TimeDomain
from millpond.runtime.windows.window import TimeWindow
from millpond.state import ReducingStateDescriptor, State, StateDescriptor

__all__ = [
    "CountTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
]


S = TypeVar("S", bound=State, default=Any)


class TriggerResult(enum.Flag):
    """What a trigger wants: nothing, a call of the window's function, its elements dropped."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3


class TriggerContext(Protocol):
    """What a trigger works with: the current key and window."""

    window: TimeWindow

    def current_watermark(self) -> int:
        """The watermark in ms."""

    def current_processing_time(self) -> int:
        """The processing time in ms."""

    def register(self, domain: TimeDomain, timestamp: int) -> None:
        """Have the trigger called for the window at a time."""

    def delete(self, domain: TimeDomain, timestamp: int) -> None:
        """Take such a call back."""

    def state(self, descriptor: StateDescriptor[S]) -> S:
        """A state of the trigger, of the current key and window."""


class Trigger(ABC):
    """Decides when a window fires; it holds nothing itself, so one serves all windows."""

    @abstractmethod
    def on_element(self, element: Any, timestamp: int, context: TriggerContext) -> TriggerResult:
        """An element was added to the window.

        Args:
            element: the row.
            timestamp: the row's event time in ms, also in windows of processing time;
                MIN_TIMESTAMP where it has none.
            context: the key's and the window's.
        """

    def on_time(self, domain: TimeDomain, timestamp: int, context: TriggerContext) -> TriggerResult:
        """A time that was registered has come, or that at which the window is dropped."""
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Whether the trigger serves windows that merge: by default, if it defines ``on_merge``.

        Windows are refused when the job is built where it does not.
        """
        return type(self).on_merge is not Trigger.on_merge

    def on_merge(self, merged: list[TimeWindow], context: TriggerContext) -> None:
        """The context's window has come from others; join what was kept for them.

        Raises:
            ConfigError: the trigger does not serve windows that merge.
        """
        raise ConfigError("trigger", f"{type(self).__name__} cannot merge windows", "windows")

    def clear(self, context: TriggerContext) -> None:
        """The window is over: drop what was kept for it."""


@attrs.frozen
class EventTimeTrigger(Trigger):
    """Fires when the watermark reaches the window's end, then at each late element."""

    @override
    def on_element(self, element: Any, timestamp: int, context: TriggerContext) -> TriggerResult:
        end = context.window.max_timestamp()
        if end <= context.current_watermark():
            return TriggerResult.FIRE
        context.register(TimeDomain.EVENT_TIME, end)
        return TriggerResult.CONTINUE

    @override
    def on_time(self, domain: TimeDomain, timestamp: int, context: TriggerContext) -> TriggerResult:
        due = domain is TimeDomain.EVENT_TIME and timestamp == context.window.max_timestamp()
        return TriggerResult.FIRE if due else TriggerResult.CONTINUE

    @override
    def on_merge(self, merged: list[TimeWindow], context: TriggerContext) -> None:
        # Of a window that is past its end the element that joined it makes on_element fire.
        end = context.window.max_timestamp()
        if end > context.current_watermark():
            context.register(TimeDomain.EVENT_TIME, end)

    @override
    def clear(self, context: TriggerContext) -> None:
        context.delete(TimeDomain.EVENT_TIME, context.window.max_timestamp())


@attrs.frozen
class ProcessingTimeTrigger(Trigger):
    """Fires when the processing time has passed the window's end."""

    @override
    def on_element(self, element: Any, timestamp: int, context: TriggerContext) -> TriggerResult:
        """An element never fires, the timer does."""
        context.register(TimeDomain.PROCESSING_TIME, context.window.max_timestamp())
        return TriggerResult.CONTINUE

    @override
    def on_time(self, domain: TimeDomain, timestamp: int, context: TriggerContext) -> TriggerResult:
        due = domain is TimeDomain.PROCESSING_TIME
        return TriggerResult.FIRE if due else TriggerResult.CONTINUE

    @override
    def on_merge(self, merged: list[TimeWindow], context: TriggerContext) -> None:
        end = context.window.max_timestamp()
        if end > context.current_processing_time():
            context.register(TimeDomain.PROCESSING_TIME, end)

    @override
    def clear(self, context: TriggerContext) -> None:
        context.delete(TimeDomain.PROCESSING_TIME, context.window.max_timestamp())


@attrs.frozen
class NeverTrigger(Trigger):
    """Never fires."""

    @override
    def on_element(self, element: Any, timestamp: int, context: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


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
    def on_element(self, element: Any, timestamp: int, context: TriggerContext) -> TriggerResult:
        count = context.state(_COUNT)
        count.add(1)
        if (count.get() or 0) < self.max_count:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    @override
    def on_merge(self, merged: list[TimeWindow], context: TriggerContext) -> None:
        context.state(_COUNT).merge_namespaces(context.window, merged)

    @override
    def clear(self, context: TriggerContext) -> None:
        context.state(_COUNT).clear()


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

    @staticmethod
    def _purging(result: TriggerResult) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if TriggerResult.FIRE in result else result

    @override
    def on_element(self, element: Any, timestamp: int, context: TriggerContext) -> TriggerResult:
        return self._purging(self.inner.on_element(element, timestamp, context))

    @override
    def on_time(self, domain: TimeDomain, timestamp: int, context: TriggerContext) -> TriggerResult:
        return self._purging(self.inner.on_time(domain, timestamp, context))

    @override
    def on_merge(self, merged: list[TimeWindow], context: TriggerContext) -> None:
        self.inner.on_merge(merged, context)

    @override
    def clear(self, context: TriggerContext) -> None:
        self.inner.clear(context)
