"""The window operator: a keyed function whose state lies under windows as namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
from typing_extensions import TypeVar, override

from millpond.errors import ConfigError, NullValueError
from millpond.functions.functions import (
    Context,
    KeyedProcessFunction,
    RuntimeContext,
    current_key_of,
)
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain
from millpond.functions.user_code import call_without_rows
from millpond.functions.windows.assigners import GlobalWindows, WindowAssigner
from millpond.functions.windows.triggers import Trigger, TriggerResult, decision
from millpond.functions.windows.window import (
    GLOBAL_WINDOW,
    MergingWindowSet,
    NameOf,
    TimeWindow,
    check_range,
    itself,
    merging_descriptor,
    window_of,
)
from millpond.functions.windows.window_contents import WindowContents, users_own
from millpond.functions.windows.window_contexts import OperatorTriggerContext, WindowContexts
from millpond.functions.windows.window_firing import SameWindows, WindowFiring, windows_of
from millpond.state import State, StateDescriptor

S = TypeVar("S", bound=State, default=Any)

_NO_KEY: Any = object()
_PLAIN = (int, float, str, bytes, tuple)


@attrs.frozen
class LateRow:
    """A row that came after all its windows were over; what a side output for such rows gets."""

    row: Any


class WindowOperator(KeyedProcessFunction):
    """Assigns rows to windows, fires them, and drops them when they are over.

    Made by ``millpond.windows.window(…)`` or ``key_by(…).window(…)``. The rules are Flink's: a
    window is over once the time reaches its end plus the allowed lateness; a row all of whose
    windows are over is late.

    Raises:
        ConfigError: the windows merge, and the trigger cannot.
    """

    def __init__(
        self,
        assigner: WindowAssigner,
        trigger: Trigger,
        contents: WindowContents,
        allowed_lateness: int = 0,
        late: Callable[[Any], Any] | None = None,
    ) -> None:
        if assigner.is_merging and not trigger.can_merge():
            reason = f"{type(assigner).__name__} merge, but {trigger!r} does not: define on_merge"
            raise ConfigError("trigger", reason, "windows")
        needed = ("max_timestamp", *(("intersects", "cover") if assigner.is_merging else ()))
        if missing := [name for name in needed if not hasattr(assigner.window_type, name)]:
            name = assigner.window_type.__name__
            reason = f"windows of type {name} lack {', '.join(missing)}: define it"
            raise ConfigError("window_type", reason, type(assigner).__name__)
        self._assigner = assigner
        self.timer_namespace = assigner.window_type
        self._trigger = trigger
        self._contents = contents
        self._lateness = allowed_lateness
        self._late = late
        self.is_event_time = assigner.is_event_time
        self._domain = TimeDomain.EVENT_TIME if self.is_event_time else TimeDomain.PROCESSING_TIME

    @property
    def fires_by_clock(self) -> bool:
        """Whether each window ends at a processing time, as one window for all rows does not."""
        return not (self.is_event_time or isinstance(self._assigner, GlobalWindows))

    @property
    def users_function(self) -> Callable[..., Any] | None:
        """What the user has written of the windows' function; None where it is all ours."""
        return users_own(self._contents.function)

    @override
    def open(self, context: RuntimeContext) -> None:
        """Get the states."""
        self._runtime = context
        self._assign = windows_of(self._assigner)
        self._state: Any = None
        if self._assigner.window_type is TimeWindow:
            self._open_state((GLOBAL_WINDOW,))
        merging = merging_descriptor(self._assigner.window_type)
        self._merging = context.get_list_state(merging) if self._assigner.is_merging else None
        self._at: OperatorTriggerContext | None = None
        self._key: Any = _NO_KEY
        self._windows: MergingWindowSet | None = None
        of_times = self._assigner.window_type is TimeWindow
        self._name_of: NameOf = itself if of_times else self._bytes_of
        merges = type(self._assigner).__name__ if self._assigner.is_merging else None
        own = (self._contents.descriptor.name, merging.name)
        self._context_of = WindowContexts(context, self.namespaced, merges, own).of
        self._firing = WindowFiring(self._contents, self._name_of, self._context_of)
        self._dropped = context.own_metrics().counter("numLateRecordsDropped")
        call_without_rows(self._contents.function.open, context)

    @override
    def close(self) -> None:
        """Close the windows' function."""
        call_without_rows(self._contents.function.close)

    def namespaced(self, descriptor: StateDescriptor[S], window: TimeWindow) -> S:
        """A state under a window."""
        kind = self._assigner.window_type
        return self._runtime.get_namespaced_state(descriptor, window, kind)

    def _open_state(self, assigned: Iterable[Any]) -> None:
        """Get the state under a first window: nobody knows one of a user's own type before."""
        for window in assigned:
            self._state = self.namespaced(self._contents.descriptor, window)
            return

    # ---------------------------------------------------------------- rows

    @override
    def process_element(self, row: Any, context: Context) -> Iterable[Any] | None:
        """Add a row to its windows; yields what those that fire give."""
        at = self._at
        if at is not None and (known := self._same.of(context.current_key, context.timestamp)):
            for namespace in known:
                self._put(row, context.timestamp, namespace)
                at.come_back()
            return None
        at = self._context(context)
        timestamp = MIN_TIMESTAMP if context.timestamp is None else context.timestamp
        if self.is_event_time and context.timestamp is None:
            raise NullValueError("the event time of a row", "a window")
        moment = timestamp if self.is_event_time else at.get_current_processing_time()
        assigned = self._assign(row, moment)
        check_range(assigned, moment)
        if self._state is None:
            self._open_state(assigned)
        if self._merging is not None:
            output, late = self._add_merging(row, timestamp, assigned, at, context)
        else:
            output, late = self._add(row, timestamp, assigned, at, context)
        if late and self._is_late(timestamp, at):
            if self._late is None:
                self._dropped.inc()
            else:
                output.append(self._late(row))
        elif not late:
            self._note(timestamp, assigned, at)
        return output

    def _note(self, timestamp: int, assigned: Any, at: OperatorTriggerContext) -> None:
        """Have the next rows of the key added to the same windows at once, if they belong there."""
        if not self._same.usable:
            return
        if self._windows is None:
            self._same.note(self._key, timestamp, assigned, assigned)
        else:  # the windows merge, and these have become one
            namespace = self._windows.namespace_of(at.window)
            assert namespace is not None
            self._same.note(self._key, timestamp, (at.window,), (namespace,))

    def _context(self, context: Context) -> OperatorTriggerContext:
        """The triggers' context, which knows nothing of a key's timers when the key is new."""
        at = self._at
        if at is None:
            timers = context.timer_service()
            at = self._at = OperatorTriggerContext(self, timers, current_key_of(self._runtime))
            self._same = SameWindows(self._assigner, self._trigger, timers)
        self._same.forget()
        key = context.current_key
        at.stay_with(key)
        if key is not self._key:
            at.known.clear()
            self._windows = None
            # An object of the user's may be changed and come again as another key.
            self._key = key if isinstance(key, _PLAIN) else _NO_KEY
        return at

    def _add(
        self,
        row: Any,
        timestamp: int,
        assigned: Iterable[TimeWindow],
        at: OperatorTriggerContext,
        context: Context,
    ) -> tuple[list[Any], bool]:
        output: list[Any] = []
        skipped = True
        for window in assigned:
            cleanup = self._cleanup_time(window)
            if not self._is_over(cleanup, at):
                skipped = False
                at.window = window
                output += self._added(row, timestamp, window, cleanup, at, context)
        return output, skipped

    def _add_merging(
        self,
        row: Any,
        timestamp: int,
        assigned: Iterable[TimeWindow],
        at: OperatorTriggerContext,
        context: Context,
    ) -> tuple[list[Any], bool]:
        windows = self._merged_windows()
        self._windows = None  # not to be used again where one of the user's functions fails
        output: list[Any] = []
        skipped = True
        for window in assigned:
            merged = windows.add(window, self._on_merge(at, context.current_key))
            cleanup = self._cleanup_time(merged)
            if self._is_over(cleanup, at):
                windows.retire(merged)
                continue
            skipped = False
            at.window = merged
            namespace = windows.namespace_of(merged)
            assert namespace is not None
            output += self._added(row, timestamp, namespace, cleanup, at, context)
        windows.persist()
        self._windows = windows
        return output, skipped

    def _merged_windows(self) -> MergingWindowSet:
        """Which windows of the current key have become one: read once while its rows come."""
        if self._windows is None:
            kind = self._assigner.window_type
            self._windows = MergingWindowSet(self._merging, kind, self._name_of)
        return self._windows

    def _bytes_of(self, window: Any) -> bytes:
        """What a window of the user's own type is known by."""
        assert self._at is not None
        return self._at.timers.namespace_bytes(self._domain, window)

    def _on_merge(self, at: OperatorTriggerContext, key: Any) -> Any:
        def on_merge(
            merged: TimeWindow,
            parts: list[TimeWindow],
            ended: list[TimeWindow],
            namespaces: list[TimeWindow],
        ) -> None:
            at.window, at.merged = merged, parts
            call_without_rows(self._trigger.on_merge, merged, at)
            at.come_back()
            for part in ended:
                at.window = part
                self._forget(part, at)
            self._state.merge_namespaces(namespaces[0], namespaces[1:])
            self._firing.forget(key, *namespaces)

        return on_merge

    def _added(
        self,
        row: Any,
        timestamp: int,
        namespace: TimeWindow,
        cleanup: int,
        at: OperatorTriggerContext,
        context: Context,
    ) -> list[Any]:
        """Add a row to the context's window, whose state lies under a namespace."""
        self._put(row, timestamp, namespace)
        result = self._trigger.on_element(row, timestamp, at.window, at)
        output = self._outcome("on_element", result, namespace, at, context)
        if cleanup < MAX_TIMESTAMP:
            at.set_timer(cleanup, by_event=self.is_event_time)
        return output

    def _put(self, row: Any, timestamp: int | None, namespace: TimeWindow) -> None:
        """Put what windows keep of a row to what lies under a namespace."""
        state, contents = self._state, self._contents
        state.set_current_namespace(namespace)
        value = contents.select(row)
        state.add(value if contents.eviction is None else (timestamp, value))

    # ---------------------------------------------------------------- time

    @override
    def on_timer(self, timestamp: int, context: Context) -> Iterable[Any]:
        """Fire or drop the window that a timer was set for."""
        at = self._context(context)
        at.known.clear()  # the one that fires is not set any more
        at.has_set = False
        window = context.namespace
        if type(window) is TimeWindow:
            window = window_of(*window)  # by the object it is found to have come before
        if self._state is None:
            self._open_state((window,))
        windows = None if self._merging is None else self._merged_windows()
        self._windows = None
        namespace = window if windows is None else windows.namespace_of(window)
        if namespace is None or context.time_domain is None:
            return []
        at.window = window
        domain = context.time_domain
        by_event = domain is TimeDomain.EVENT_TIME
        method = "on_event_time" if by_event else "on_processing_time"
        result = getattr(self._trigger, method)(timestamp, window, at)
        output = self._outcome(method, result, namespace, at, context)
        if self.cleans_up_at(domain, window, timestamp):
            self._state.set_current_namespace(namespace)
            self._state.clear()
            self._firing.forget(context.current_key, namespace)
            call_without_rows(self._trigger.clear, window, at)
            if at.has_set:  # else there is no further clean-up than the one that has just fired
                at.delete_timer(self._domain, timestamp, window)
            at.come_back()
            call_without_rows(self._contents.function.clear, self._context_of(at))
            at.come_back()
            if windows is not None:
                windows.retire(window)
                windows.persist()
        return output

    def _forget(self, window: TimeWindow, at: OperatorTriggerContext) -> None:
        """Drop what the trigger keeps of the context's window, and its clean-up."""
        call_without_rows(self._trigger.clear, window, at)
        at.delete_timer(self._domain, self._cleanup_time(window), window)

    def cleans_up_at(self, domain: TimeDomain, window: TimeWindow, timestamp: int) -> bool:
        """Whether a time is the one at which a window is dropped."""
        return domain is self._domain and timestamp == self._cleanup_time(window)

    def _cleanup_time(self, window: TimeWindow) -> int:
        lateness = self._lateness if self.is_event_time else 0
        return min(window.max_timestamp() + lateness, MAX_TIMESTAMP)

    def _is_over(self, cleanup: int, at: OperatorTriggerContext) -> bool:
        return self.is_event_time and cleanup <= at.get_current_watermark()

    def _is_late(self, timestamp: int, at: OperatorTriggerContext) -> bool:
        return self.is_event_time and timestamp + self._lateness <= at.get_current_watermark()

    # ---------------------------------------------------------------- firing

    def _outcome(
        self,
        method: str,
        result: Any,
        namespace: TimeWindow,
        at: OperatorTriggerContext,
        context: Context,
    ) -> list[Any]:
        """What a trigger's decision leads to, which is most often nothing."""
        at.come_back()
        if result is TriggerResult.CONTINUE:
            return []
        return list(self._fired(decision(self._trigger, method, result), namespace, at, context))

    def _fired(
        self,
        result: TriggerResult,
        namespace: TimeWindow,
        at: OperatorTriggerContext,
        context: Context,
    ) -> Iterator[Any]:
        self._state.set_current_namespace(namespace)
        if TriggerResult.FIRE in result:
            yield from self._firing.rows(self._state, namespace, at, context.current_key)
        if TriggerResult.PURGE in result:
            self._state.clear()
            self._firing.forget(context.current_key, namespace)
