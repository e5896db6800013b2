"""The window operator: a keyed function whose state is stored under windows as namespaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import attrs
from typing_extensions import TypeVar, override

from millpond.errors import ConfigError, NoEventTimeError
from millpond.functions.functions import (
    BuiltInFunction,
    Context,
    RuntimeContext,
    current_key_of,
    timers_of,
)
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, TimerService
from millpond.functions.user_code import call_without_rows, rows_of
from millpond.functions.windows.assigners import (
    GlobalWindows,
    WindowAssigner,
    is_ours,
)
from millpond.functions.windows.evictors import TimestampedValue, elements_left
from millpond.functions.windows.triggers import (
    EventTimeTrigger,
    OnMergeContext,
    Trigger,
    TriggerResult,
    decision,
)
from millpond.functions.windows.window import (
    GLOBAL_WINDOW,
    MergingWindowSet,
    TimeWindow,
    check_range,
    merging_descriptor,
    window_of,
)
from millpond.functions.windows.window_contents import WindowContents, WindowContext, WindowStates
from millpond.spi.keys import CurrentKey
from millpond.state import MergingState, State, StateDescriptor, StateKind

S = TypeVar("S", bound=State, default=Any)

_NO_KEY: Any = object()
_PLAIN = (int, float, str, bytes, tuple)
_MOST_KNOWN_TIMERS = 1000


@attrs.frozen
class LateRow:
    """A late row in the main output: all windows of the row were over when the row came."""

    row: Any


@attrs.define
class OperatorTriggerContext(OnMergeContext):
    """The context of triggers: time, timers and states of one window of the current key.

    Attributes:
        key: the key whose row or timer is processed.
        group: the key group of ``key``.
        window: the window.
        namespace: the namespace of the window's contents.
        merged: in ``on_merge``, the windows that were merged into ``window``.
        known: timers of the current key that are known to be set. Each row of a window sets the
            same timers. Finding a timer in ``known`` takes 0.1 µs, setting it again 0.7 µs.
        has_set: whether a timer was set since this attribute was last set to False.
    """

    _operator: WindowOperator
    timers: TimerService
    current: CurrentKey
    key: Any = None
    group: int | None = None
    window: Any = GLOBAL_WINDOW
    namespace: Any = GLOBAL_WINDOW
    merged: list[Any] = attrs.field(factory=list)
    known: set[tuple[bool, int, TimeWindow]] = attrs.field(factory=set)
    has_set: bool = False

    def come_back(self) -> None:
        """Select ``key`` again if the user's code has selected another key by a state's ``at``."""
        if self.current.key_or_none is not self.key:
            self.current.return_to(self.key, self.group)

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
        """Set a timer of the window, by event time or by processing time."""
        timer = by_event, time, self.window
        # Windows of a user's type may be equal in Python although their bytes and timers differ.
        plain = type(self.window) is TimeWindow and type(time) is int
        if plain and timer in self.known:
            return
        self.come_back()
        self.has_set = True
        domain = TimeDomain.EVENT_TIME if by_event else TimeDomain.PROCESSING_TIME
        self.timers.register(domain, time, self.window)
        if len(self.known) >= _MOST_KNOWN_TIMERS:
            self.known.clear()
        if plain:
            self.known.add(timer)

    def delete_timer(self, domain: TimeDomain, time: int, window: Any) -> None:
        """Remove the timer for ``time`` of ``window``, even if it is the clean-up timer."""
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
        # The clean-up timer of the window may be for the same time and must remain.
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


class LastWindows:
    """The windows of the last row, for the next rows of the key that belong to the same windows.

    Rows come sorted by key, so most rows belong to the windows of the row before. For such a row
    only the value must be added, because the timers of the windows are already set and not due. In
    windows of an hour this takes 1.5 µs a row instead of 3.9, in sliding windows 2.9 µs instead of
    7.7 (heap, processor time).

    Only windows of event time with Millpond's own assigner and trigger are noted, because a user's
    assigner or trigger may look at each element.

    Args:
        assigner: the assigner of the windows.
        trigger: the trigger of the windows.
        timers: reports the watermark.

    Attributes:
        usable: whether windows can be noted here for the next rows.
        key: the key object of the last row; an object that is no key if no windows are noted.
        first: the first time whose rows belong to the noted windows.
        end: the time after the last time whose rows belong to the noted windows.
        namespaces: the namespaces of the windows' contents.
    """

    def __init__(self, assigner: WindowAssigner, trigger: Trigger, timers: TimerService) -> None:
        self._assigner = assigner
        self._timers = timers
        by_time = assigner.is_event_time and type(trigger) is EventTimeTrigger
        self.usable = by_time and is_ours(assigner)
        self.key: Any = _NO_KEY
        self.first = self.end = 0
        self.namespaces: Any = ()

    def forget(self) -> None:
        """Forget the windows, so that the next row is assigned to windows again."""
        self.key = _NO_KEY

    def note(self, key: Any, timestamp: int, windows: Any, namespaces: Any) -> None:
        """Note a row's key, time in ms and windows, and the namespaces of the windows' contents."""
        # When a noted window becomes due, its timer fires, and ``on_timer`` forgets the windows.
        if min(map(TimeWindow.max_timestamp, windows)) > self._timers.current_watermark():
            self.first, self.end = self._assigner._moments_alike(  # noqa: SLF001 - our own
                timestamp, windows
            )
            self.key, self.namespaces = key, namespaces


class WindowOperator(BuiltInFunction):
    """Assigns rows to windows, fires the windows, and drops windows that are over.

    The methods of ``millpond.windows.window(…)`` and ``key_by(…).window(…)`` make this function.
    The rules are Flink's: a window is over once the time reaches the window's end plus the allowed
    lateness. A row is late if all of the row's windows are over.

    Raises:
        ConfigError: the windows merge, and the trigger does not support merging windows.
    """

    subject = "windows"

    def __init__(
        self,
        assigner: WindowAssigner,
        trigger: Trigger,
        contents: WindowContents,
        allowed_lateness: int = 0,
        late: Callable[[Any], Any] | None = None,
    ) -> None:
        if assigner.is_merging and not trigger.can_merge():
            reason = (
                f"{type(assigner).__name__} merge, but {trigger!r} does not: choose "
                "another trigger, or define on_merge in a trigger of your own"
            )
            raise ConfigError("trigger", reason, "windows")
        self._assigner = assigner
        self.timer_namespace = assigner.window_type
        self._trigger = trigger
        self._contents = contents
        self._lateness = allowed_lateness if assigner.is_event_time else 0
        self._late = late
        self.is_event_time = assigner.is_event_time
        self._domain = TimeDomain.EVENT_TIME if self.is_event_time else TimeDomain.PROCESSING_TIME

    @property
    @override
    def fires_by_clock(self) -> bool:
        # The window of GlobalWindows does not end.
        return not (self.is_event_time or isinstance(self._assigner, GlobalWindows))

    @property
    @override
    def users_function(self) -> Callable[..., Any] | None:
        function = self._contents.function
        users: Callable[..., Any] | None = getattr(function, "users", function.process)
        return users

    @override
    def open(self, context: RuntimeContext) -> None:
        """Get the states, and open the windows' function."""
        assigner, timers = self._assigner, timers_of(context)
        kind, of_times = assigner.window_type, assigner.window_type is TimeWindow
        self._runtime = context
        self._at = OperatorTriggerContext(self, timers, current_key_of(context))
        self._last = LastWindows(assigner, self._trigger, timers)
        self._key: Any = _NO_KEY
        self._name_of: Callable[[Any], Any] = (lambda each: each) if of_times else self._bytes_of
        self._state: Any = None
        if of_times:
            self._open_state(GLOBAL_WINDOW)
        merging = merging_descriptor(kind)
        self._merging = context.get_list_state(merging) if assigner.is_merging else None
        self._windows: MergingWindowSet | None = None
        merges = type(assigner).__name__ if assigner.is_merging else None
        own = (self._contents.descriptor.name, merging.name)
        self._window_states = WindowStates(context, merges, kind, own)
        self._dropped = context.own_metrics().counter("numLateRecordsDropped")
        call_without_rows(self._contents.function.open, context)

    @override
    def close(self) -> None:
        """Close the windows' function."""
        call_without_rows(self._contents.function.close)

    def namespaced(self, descriptor: StateDescriptor[S], window: TimeWindow) -> S:
        """Return a state whose current namespace is ``window``."""
        return self._runtime.get_namespaced_state(descriptor, window, self._assigner.window_type)

    def _open_state(self, window: Any) -> None:
        self._state = self.namespaced(self._contents.descriptor, window)

    def _bytes_of(self, window: Any) -> bytes:
        """Return a window of a user's type as bytes: the namespace of its states and timers."""
        return self._at.timers.namespace_bytes(self._domain, window)

    # ---------------------------------------------------------------- rows

    @override
    def process_element(self, row: Any, context: Context) -> Iterable[Any] | None:
        """Add a row to its windows, and return the output rows of the windows that fire."""
        last, at, time = self._last, self._at, context.timestamp
        if context.current_key is last.key and time is not None and last.first <= time < last.end:
            state, current, key = self._state, at.current, at.key
            for namespace in last.namespaces:
                state.set_current_namespace(namespace)
                # If the value is an iterator, it can be read only once: each window needs its own.
                state.add(self._value(row, time))
                if current.key_or_none is not key:
                    at.come_back()
            return None
        self._begin(context)
        if self.is_event_time and context.timestamp is None:
            raise NoEventTimeError
        timestamp = MIN_TIMESTAMP if context.timestamp is None else context.timestamp
        moment = timestamp if self.is_event_time else self._at.get_current_processing_time()
        assigned = list(self._assigner.assign_windows(row, moment))
        check_range(assigned, moment)
        output, late = self._add(row, timestamp, assigned)
        if not late:
            if self._last.usable:
                merging = self._windows is not None
                windows = (at.window,) if merging else assigned
                namespaces = (at.namespace,) if merging else assigned
                self._last.note(self._key, timestamp, windows, namespaces)
        elif self.is_event_time and timestamp + self._lateness <= self._at.get_current_watermark():
            if self._late is None:
                self._dropped.inc()
            else:
                output.append(self._late(row))
        return output

    def _begin(self, context: Context) -> None:
        """Prepare for a row or timer: note the current key, and forget data of an earlier key."""
        at, key = self._at, context.current_key
        self._last.forget()
        at.key, at.group = key, at.current.key_group
        if key is not self._key:
            at.known.clear()
            self._windows = None
            # A user may change a key object, so that the same object becomes another key.
            self._key = key if isinstance(key, _PLAIN) else _NO_KEY

    @override
    def forget(self) -> None:
        self._last.forget()
        self._at.known.clear()
        self._windows = None

    def _add(
        self, row: Any, timestamp: int, assigned: Collection[TimeWindow]
    ) -> tuple[list[Any], bool]:
        """Add a row to the windows in ``assigned`` that are not over.

        Returns:
            The output rows of the windows that fire, and whether all windows are over.
        """
        merging = self._merged_windows()
        self._windows = None  # read again if one of the user's functions fails
        output: list[Any] = []
        late = True
        for each in assigned:
            if self._state is None:
                self._open_state(each)
            window = each if merging is None else merging.add(each, self._on_merge)
            cleanup = self._cleanup_time(window)
            if self._is_over(cleanup):
                if merging is not None:
                    merging.retire(window)
                continue
            late = False
            self._at.window = window
            self._at.namespace = window if merging is None else merging.namespace_of(window)
            self._state.set_current_namespace(self._at.namespace)
            self._state.add(self._value(row, timestamp))
            result = self._trigger.on_element(row, timestamp, window, self._at)
            output += self._outcome("on_element", result)
            if cleanup < MAX_TIMESTAMP:
                self._at.set_timer(cleanup, by_event=self.is_event_time)
        if merging is not None:
            merging.persist()
        self._windows = merging
        return output, late

    def _merged_windows(self) -> MergingWindowSet | None:
        """Return the merged windows of the current key, or None if windows do not merge.

        The merged windows are read from the state only once for consecutive rows of a key.
        """
        if self._windows is None and self._merging is not None:
            return MergingWindowSet(self._merging, self._assigner.window_type, self._name_of)
        return self._windows

    def _on_merge(
        self, merged: Any, parts: list[Any], ended: list[Any], namespaces: list[Any]
    ) -> None:
        """Merge the trigger's states and the contents of windows that have become one.

        ``OnMerge`` describes the arguments.
        """
        at = self._at
        at.window, at.merged = merged, parts
        call_without_rows(self._trigger.on_merge, merged, at)
        at.come_back()
        for part in ended:
            at.window = part
            self._forget(part)
        self._state.merge_namespaces(namespaces[0], namespaces[1:])

    def _forget(self, window: Any) -> None:
        """Drop the trigger's state and the clean-up timer of ``window``.

        The context must be set to this window already.
        """
        call_without_rows(self._trigger.clear, window, self._at)
        self._at.delete_timer(self._domain, self._cleanup_time(window), window)

    def _value(self, row: Any, timestamp: int | None) -> Any:
        """Return the value that windows keep of ``row``; with an evictor, add ``timestamp``."""
        value = self._contents.select(row)
        return value if self._contents.evictor is None else (timestamp, value)

    # ---------------------------------------------------------------- time

    @override
    def on_timer(self, timestamp: int, context: Context) -> Iterable[Any]:
        """Fire or drop the window to which the due timer belongs."""
        self._begin(context)
        at, window, domain = self._at, context.namespace, context.time_domain
        at.known.clear()  # the timer that fires is no longer set
        at.has_set = False
        if type(window) is TimeWindow:
            window = window_of(*window)  # states recognize a namespace by the object's identity
        if self._state is None:
            self._open_state(window)
        merging = self._merged_windows()
        self._windows = None
        at.window = window
        at.namespace = window if merging is None else merging.namespace_of(window)
        if at.namespace is None or domain is None:
            return []
        by_event = domain is TimeDomain.EVENT_TIME
        method = "on_event_time" if by_event else "on_processing_time"
        result = getattr(self._trigger, method)(timestamp, window, at)
        output = self._outcome(method, result)
        if self.cleans_up_at(domain, window, timestamp):
            self._clean_up(timestamp)
            if merging is not None:
                merging.retire(window)
                merging.persist()
        return output

    def _clean_up(self, timestamp: int) -> None:
        """Drop all state of the context's window, whose clean-up timer has fired."""
        at = self._at
        self._clear_contents()
        call_without_rows(self._trigger.clear, at.window, at)
        if at.has_set:  # the trigger may have set the clean-up timer again
            at.delete_timer(self._domain, timestamp, at.window)
        at.come_back()
        call_without_rows(self._contents.function.clear, self._window_context())
        at.come_back()

    def cleans_up_at(self, domain: TimeDomain, window: TimeWindow, timestamp: int) -> bool:
        """Return whether a timer for ``timestamp`` is the clean-up timer that drops ``window``."""
        return domain is self._domain and timestamp == self._cleanup_time(window)

    def _cleanup_time(self, window: Any) -> int:
        """Return the time in ms at which a window is over and dropped."""
        return min(int(window.max_timestamp()) + self._lateness, MAX_TIMESTAMP)

    def _is_over(self, cleanup: int) -> bool:
        return self.is_event_time and cleanup <= self._at.get_current_watermark()

    # ---------------------------------------------------------------- firing

    def _outcome(self, method: str, result: Any) -> list[Any]:
        """Fire or purge the context's window, as the trigger decided; return the output rows.

        Args:
            method: the trigger's method.
            result: the result of that method.
        """
        at = self._at
        at.come_back()
        if result is TriggerResult.CONTINUE:
            return []
        result = decision(self._trigger, method, result)
        self._state.set_current_namespace(at.namespace)
        output = list(self._fired_rows()) if TriggerResult.FIRE in result else []
        if TriggerResult.PURGE in result:
            self._clear_contents()
        return output

    def _clear_contents(self) -> None:
        self._state.set_current_namespace(self._at.namespace)
        self._state.clear()

    def _fired_rows(self) -> Iterator[Any]:
        """Yield the output rows of the context's window; no rows if the window is empty."""
        held, contents = self._state.get(), self._contents
        if held is None or (not held and contents.descriptor.kind is StateKind.LIST):
            return
        yield from self._called(held) if contents.evictor is None else self._evicted(held)

    def _called(self, held: Any) -> Iterator[Any]:
        """Call the windows' function with the contents ``held``, and yield the output rows."""
        process = self._contents.function.process
        yield from rows_of(process, process(self._at.key, self._window_context(), held))
        self._at.come_back()

    def _window_context(self) -> WindowContext:
        return WindowContext(self._at.window, self._at.timers, self._window_states)

    def _evicted(self, held: list[Any]) -> Iterator[Any]:
        """Evict elements of the context's window, and yield the rows of the windows' function.

        The function gets the elements that ``evict_before`` leaves. The elements that
        ``evict_after`` leaves are stored for the next firing.

        Args:
            held: the window's stored elements, as pairs of time and value.
        """
        at, evictor = self._at, self._contents.evictor
        assert evictor is not None
        elements = [TimestampedValue(*element) for element in held]
        left = elements_left(evictor.evict_before, elements, at.window, at)
        at.come_back()
        result = self._contents.result([element.value for element in left])
        if result is not None:
            yield from self._called(result)
        elements = elements_left(evictor.evict_after, left, at.window, at)
        at.come_back()
        if len(elements) != len(held):
            self._state.set_current_namespace(at.namespace)
            self._state.update([tuple(element) for element in elements])
