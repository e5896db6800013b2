"""What a trigger is: when a window's function is called. Names and rules are PyFlink's."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import Any, Protocol

from typing_extensions import TypeVar

from millpond.errors import ConfigError
from millpond.functions.results import refusal
from millpond.functions.windows.window import TimeWindow
from millpond.state import State, StateDescriptor

__all__ = ["OnMergeContext", "Trigger", "TriggerContext", "TriggerResult", "decision"]


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
    raise refusal(getattr(trigger, method), result, "a TriggerResult")


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
