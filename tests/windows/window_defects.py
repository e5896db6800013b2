"""Defects that tests plant into windows: a class, the name of a method, and its replacement."""

import millpond as mp
from millpond import windows
from millpond.backend.timer_queue import TimerQueue
from millpond.functions.timer_service import TimerService
from millpond.functions.windows.assigners import _Session, _Sliding, _Tumbling
from millpond.functions.windows.repeating_triggers import _NEXT
from millpond.functions.windows.triggers import fire_at_end
from millpond.functions.windows.window_operator import LastWindows, OperatorTriggerContext
from millpond.windows import (
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    TriggerResult,
    WindowOperator,
)


def nothing(*_):
    return None


def late_at_the_end_only(self, cleanup):
    return self.is_event_time and cleanup < self._at.get_current_watermark()


def fires_at_its_last_moment(self, element, timestamp, window, ctx):
    end = window.max_timestamp()
    if end <= ctx.get_current_processing_time():
        return TriggerResult.FIRE
    ctx.register_processing_time_timer(end)
    return TriggerResult.CONTINUE


def from_the_first(self, element, timestamp, window, ctx):
    last = ctx.get_partitioned_state(self._last)
    first, new = last.value(), element.n
    last.update(new if first is None else first)
    fires = first is not None and new - first > self.threshold
    return TriggerResult.FIRE if fires else TriggerResult.CONTINUE


def fires_by_nan(self, element, timestamp, window, ctx):
    last = ctx.get_partitioned_state(self._last)
    remembered, new = last.value(), element.n
    if remembered is not None and self.delta_function(remembered, new) <= self.threshold:
        return TriggerResult.CONTINUE
    last.update(new)
    return TriggerResult.CONTINUE if remembered is None else TriggerResult.FIRE


def begun_before(self, now, end, ctx):
    if ctx.get_partitioned_state(_NEXT).get() is None:
        self._wait_for(min(now - now % self.interval + self.interval, end), ctx)


def begun_without_time(self, element, timestamp, window, ctx):
    result = fire_at_end(window, ctx)
    if result is TriggerResult.CONTINUE:
        self._begin(timestamp, window.max_timestamp(), ctx)
    return result


def goes_on_past_the_end(self, element, timestamp, window, ctx):
    now, end = ctx.get_current_processing_time(), window.max_timestamp()
    self._begin(now, end if now <= end else mp.MAX_TIMESTAMP, ctx)
    return TriggerResult.CONTINUE


def noted_anyway(self, key, timestamp, windows, namespaces):
    self.first, self.end = self._assigner._moments_alike(timestamp, windows)
    self.key, self.namespaces = key, namespaces


DEFECTS = {
    "processing-time timers fire at their time": (
        TimerService,
        "due_by_processing_time",
        lambda self: self.due(mp.TimeDomain.PROCESSING_TIME, self._clock.now_ms),
    ),
    "a window of processing time fires at its last moment": (
        ProcessingTimeTrigger,
        "on_element",
        fires_at_its_last_moment,
    ),
    "timers of merged windows stay": (EventTimeTrigger, "clear", nothing),
    "counts of merged windows stay apart": (CountTrigger, "on_merge", nothing),
    "a purging trigger forgets to clear": (PurgingTrigger, "clear", nothing),
    "a continuous trigger forgets the time when windows merge": (
        windows.ContinuousEventTimeTrigger,
        "on_merge",
        nothing,
    ),
    "a continuous trigger by the clock fires once": (
        windows.ContinuousProcessingTimeTrigger,
        "_following",
        lambda self, time, end, ctx: mp.MAX_TIMESTAMP,
    ),
    "the timeout stays when the window fires": (
        windows.ProcessingTimeoutTrigger,
        "clear",
        nothing,
    ),
    "intervals before 1970 are counted from their beginning": (
        windows.ContinuousEventTimeTrigger,
        "_begin",
        begun_before,
    ),
    "an interval without end begins with a row that has no event time": (
        windows.ContinuousEventTimeTrigger,
        "on_element",
        begun_without_time,
    ),
    "a window without end waits for each interval to the last": (
        windows.ContinuousEventTimeTrigger,
        "_following",
        lambda self, time, end, ctx: min(time + self.interval, end),
    ),
    "the clock goes on past the end of a window of event time": (
        windows.ContinuousProcessingTimeTrigger,
        "on_element",
        goes_on_past_the_end,
    ),
    "a difference of NaN fires": (windows.DeltaTrigger, "on_element", fires_by_nan),
    "a difference of NaN evicts": (
        windows.DeltaEvictor,
        "_stay",
        lambda self, elements: [
            each
            for each in elements
            if self.delta_function(each.value, elements[-1].value) < self.threshold
        ],
    ),
    "own windows are the same by what Python says": (
        WindowOperator,
        "_bytes_of",
        lambda self, window: window,
    ),
    "the operator goes on with another key": (OperatorTriggerContext, "come_back", nothing),
    "a difference counts from the first element": (
        windows.DeltaTrigger,
        "on_element",
        from_the_first,
    ),
    "an evictor evicts too late": (
        windows.CountEvictor,
        "evict_before",
        lambda self, elements, window, ctx: elements,
    ),
    "what is evicted stays in the window": (
        windows.TimeEvictor,
        "_stay",
        lambda self, elements: [
            e for e in elements if e.timestamp >= elements[-1].timestamp - self.size
        ],
    ),
    "windows are open for one more watermark": (WindowOperator, "_is_over", late_at_the_end_only),
    "what triggers keep of windows is not dropped": (WindowOperator, "_forget", nothing),
    "windows that touch do not merge": (
        TimeWindow,
        "intersects",
        lambda self, other: self.start < other.end and self.end > other.start,
    ),
    "a row stays with its windows when they have fired": (LastWindows, "forget", nothing),
    "a row stays with windows that are due": (LastWindows, "note", noted_anyway),
    "a clean-up that was set again stays": (OperatorTriggerContext, "delete_timer", nothing),
    "a row behind the end of a tumbling window stays in it": (
        _Tumbling,
        "_moments_alike",
        lambda self, timestamp, windows: (windows[0].start, windows[0].end + 1),
    ),
    "sliding windows are the same until the next one begins": (
        _Sliding,
        "_moments_alike",
        lambda self, timestamp, windows: (windows[0].start, windows[0].start + self.slide),
    ),
    "a session takes rows until its end and does not grow": (
        _Session,
        "_moments_alike",
        lambda self, timestamp, windows: windows[0],
    ),
    "a session of which each row says the gap goes by the first one's": (
        _Session,
        "_moments_alike",
        lambda self, timestamp, windows: (timestamp, timestamp + 1),
    ),
    "a timer deleted while others fire still fires": (
        TimerQueue,
        "delete",
        lambda self, timestamp, namespace: self._rows.discard(self._row(timestamp, namespace)),
    ),
}
