"""The contexts of triggers and of window functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import attrs
from typing_extensions import TypeVar, override

from millpond.errors import ConfigError, StateConflictError, WindowStateError
from millpond.functions.functions import RuntimeContext
from millpond.functions.timer_service import TimeDomain, TimerService
from millpond.functions.windows.triggers import OnMergeContext
from millpond.functions.windows.window import GLOBAL_WINDOW, TimeWindow
from millpond.functions.windows.window_contents import WindowContext
from millpond.spi.keys import CurrentKey
from millpond.state import MergingState, State, StateDescriptor

_MOST = 1000

S = TypeVar("S", bound=State, default=Any)


class HasWindows(Protocol):
    """What a trigger's context asks the window operator for."""

    def cleans_up_at(self, domain: TimeDomain, window: TimeWindow, timestamp: int, /) -> bool:
        """Whether a time is the one at which a window is dropped."""

    def namespaced(self, descriptor: StateDescriptor[S], window: TimeWindow, /) -> S:
        """A state under a window."""


@attrs.define
class OperatorTriggerContext(OnMergeContext):
    """The current key and one of its windows, as triggers see them.

    Attributes:
        known: timers of the current key that are set for certain, of time windows, whose equality
            is that of their bytes. Row after row asks for the same ones: to look here takes
            0.1 µs, to set one again 0.7.
        has_set: whether any timer was set since that was last made False.
    """

    _operator: HasWindows
    timers: TimerService
    _current: CurrentKey
    window: TimeWindow = GLOBAL_WINDOW
    merged: list[TimeWindow] = attrs.field(factory=list)
    known: set[tuple[bool, int, TimeWindow]] = attrs.field(factory=set)
    has_set: bool = False
    _key: Any = None
    _group: int = 0

    def stay_with(self, key: Any) -> None:
        """The current key is the one to come back to."""
        assert self._current.key_group is not None
        self._key, self._group = key, self._current.key_group

    def come_back(self) -> None:
        """Choose the key again where what users write has chosen another, by a state's ``at``."""
        if self._current.key_or_none is not self._key:
            self._current.select(self._key, self._group)

    @override
    def get_current_watermark(self) -> int:
        return self.timers.current_watermark()

    @override
    def get_current_processing_time(self) -> int:
        return self.timers.current_processing_time()

    @override
    def register_event_time_timer(self, time: int) -> None:
        self.set_timer(time, by_event=True)

    @override
    def register_processing_time_timer(self, time: int) -> None:
        self.set_timer(time, by_event=False)

    def set_timer(self, time: int, *, by_event: bool) -> None:
        """Set a timer of the window."""
        timer = by_event, time, self.window
        plain = type(self.window) is TimeWindow and type(time) is int
        if plain and timer in self.known:
            return
        self.come_back()
        self.has_set = True
        domain = TimeDomain.EVENT_TIME if by_event else TimeDomain.PROCESSING_TIME
        self.timers.register(domain, time, self.window)
        if len(self.known) >= _MOST:
            self.known.clear()
        if plain:
            self.known.add(timer)

    def delete_timer(self, domain: TimeDomain, time: int, window: TimeWindow) -> None:
        """Remove a timer of a window, its last clean-up too."""
        self.known.clear()
        self.come_back()
        self.timers.delete(domain, time, window)

    @override
    def delete_event_time_timer(self, time: int) -> None:
        self._delete(TimeDomain.EVENT_TIME, time)

    @override
    def delete_processing_time_timer(self, time: int) -> None:
        self._delete(TimeDomain.PROCESSING_TIME, time)

    def _delete(self, domain: TimeDomain, time: int) -> None:
        # A window's last clean-up falls on the same time and must stay.
        if not self._operator.cleans_up_at(domain, self.window, time):
            self.delete_timer(domain, time, self.window)

    @override
    def get_partitioned_state(self, state_descriptor: StateDescriptor[S]) -> S:
        self.come_back()
        return self._operator.namespaced(state_descriptor, self.window)

    @override
    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = self.get_partitioned_state(state_descriptor)
        if not isinstance(state, MergingState):
            kind = state_descriptor.kind.value
            reason = f"the {kind} state {state_descriptor.name!r} cannot be merged"
            raise ConfigError("trigger", reason, "windows")
        state.merge_namespaces(self.window, self.merged)


class WindowContexts:
    """Makes the contexts of one subtask's windows, and knows which states they have given out.

    Args:
        runtime: where states of a key lie.
        namespaced: gives a state under a window.
        merging: the assigner's name, where its windows merge.
        own: the names of the states in which the windows themselves are kept.
    """

    def __init__(
        self,
        runtime: RuntimeContext,
        namespaced: Callable[[StateDescriptor, Any], Any],
        merging: str | None,
        own: Iterable[str],
    ) -> None:
        self._runtime = runtime
        self._namespaced = namespaced
        self._merging = merging
        self._uses = dict.fromkeys(own, "what the windows keep")

    def of(self, at: OperatorTriggerContext) -> WindowContext:
        """The context of the window that a trigger's context is at."""
        window = at.window

        def state(descriptor: StateDescriptor, of_window: bool) -> Any:  # noqa: FBT001 - internal
            if of_window and self._merging is not None:
                raise WindowStateError(descriptor.name, self._merging)
            use = "window_state" if of_window else "global_state"
            known = self._uses.setdefault(descriptor.name, use)
            if known != use:  # one state object, whose namespace the other use would change
                raise StateConflictError(descriptor.name, known, use)
            if of_window:
                return self._namespaced(descriptor, window)
            return self._runtime.get_namespaced_state(descriptor, GLOBAL_WINDOW, TimeWindow)

        return WindowContext(window, at.timers, state)
