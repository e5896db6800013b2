"""A port of Flink's window operator, timers, assigners and triggers, for comparison.

It follows the Java sources name by name (``WindowOperator``, ``MergingWindowSet``, ``TimeWindow``,
``InternalTimerServiceImpl`` over a ``SystemProcessingTimeService``) and shares no code with
Millpond. If Flink leaves an order open, as for timers of the same time, the caller chooses it by
``rank``. The port corrects three faults of Flink, see ``MergingWindowSet.add_window``,
``WindowOperator.delete``, and ``ContinuousEventTime`` in ``flink_triggers``.
"""

from typing import NamedTuple

MIN, MAX = -(1 << 63), (1 << 63) - 1
CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = "continue", "fire", "purge", "fire and purge"
EVENT, PROCESSING = "event-time", "processing-time"


class Window(NamedTuple):
    start: int
    end: int

    def max_timestamp(self):
        return MAX if self == GLOBAL else self.end - 1


GLOBAL = Window(MIN, MAX)


class TimerService:
    """``InternalTimerServiceImpl``: two queues, and one scheduled task for the earliest processing-time timer."""

    def __init__(self, rank, now):
        self.rank, self.now, self.watermark = rank, now, MIN
        self.key = None
        self.queues = {EVENT: set(), PROCESSING: set()}
        self.next_task = None

    def peek(self, domain):
        order = lambda timer: (timer[0], self.rank(timer[1]), timer[2])  # noqa: E731
        return min(self.queues[domain], key=order, default=None)

    def register(self, domain, time, window):
        head = self.peek(domain)
        timer = (time, self.key, window)
        if timer in self.queues[domain]:
            return
        self.queues[domain].add(timer)
        if domain == PROCESSING and time < (MAX if head is None else head[0]):
            self.next_task = time

    def delete(self, domain, time, window):
        self.queues[domain].discard((time, self.key, window))

    def advance_watermark(self, time, target):
        if time <= self.watermark:
            return  # a watermark gauge accepts only higher values
        self.watermark = time
        self.poll(EVENT, time, target)

    def advance_processing_time(self, now, target):
        """Run the task for time T once the clock has passed T: Flink adds 1 ms to the delay."""
        self.now = now
        while self.next_task is not None and self.next_task + 1 <= now:
            time, self.next_task = self.next_task, None
            self.poll(PROCESSING, time, target)
            head = self.peek(PROCESSING)
            if head is not None and self.next_task is None:
                self.next_task = head[0]

    def poll(self, domain, time, target):
        while (timer := self.peek(domain)) is not None and timer[0] <= time:
            self.key = timer[1]
            self.queues[domain].discard(timer)
            target(domain, *timer)

    def restored(self):
        """Return a restored service: without a watermark, and with a task for the earliest timer."""
        self.watermark = MIN
        head = self.peek(PROCESSING)
        self.next_task = None if head is None else head[0]


# ---------------------------------------------------------------- assigners


def remainder(dividend, divisor):
    """Return Java's ``%``, which has the sign of the dividend."""
    return abs(dividend) % divisor * (1 if dividend >= 0 else -1)


def window_start(timestamp, offset, size):
    """``TimeWindow.getWindowStartWithOffset``."""
    rest = remainder(timestamp - offset, size)
    return timestamp - rest if rest >= 0 else timestamp - (rest + size)


def tumbling(size, offset):
    def assign(row, timestamp):
        start = window_start(timestamp, offset, size)
        return [Window(start, start + size)]

    return assign


def sliding(size, slide, offset):
    def assign(row, timestamp):
        found = []
        start = window_start(timestamp, offset, slide)
        while start > timestamp - size:
            found.append(Window(start, start + size))
            start -= slide
        return found

    return assign


def session(gap_of):
    return lambda row, timestamp: [Window(timestamp, timestamp + gap_of(row))]


def all_in_one(row, timestamp):
    return [GLOBAL]


# ---------------------------------------------------------------- evictors, as before and after


def none_evicted(rows):
    return rows


def evict_by_count(most):
    def stay(rows):
        gone = len(rows) - most
        return [row for index, row in enumerate(rows) if index >= gone]

    return stay


def evict_by_time(size):
    def stay(rows):
        if not rows or rows[0]["at"] == MIN:
            return rows
        cutoff = max(row["at"] for row in rows) - size
        return [row for row in rows if not row["at"] <= cutoff]

    return stay


def evict_by_delta(threshold, delta):
    def stay(rows):
        return [row for row in rows if not delta(row, rows[-1]) >= threshold]

    return stay


# ---------------------------------------------------------------- merging


def merge_windows(windows):
    """``TimeWindow.mergeWindows``: return groups of overlapping windows, each with its covering window."""
    merged = []
    for candidate in sorted(windows):
        if merged and merged[-1][0].start <= candidate.end and merged[-1][0].end >= candidate.start:
            cover, parts = merged[-1]
            both = Window(min(cover.start, candidate.start), max(cover.end, candidate.end))
            merged[-1] = (both, {*parts, candidate})
        else:
            merged.append((candidate, {candidate}))
    return [(cover, parts) for cover, parts in merged if len(parts) > 1]


class MergingWindowSet:
    """The mapping from windows to state windows of one key."""

    def __init__(self, mapping):
        self.mapping = mapping

    def add_window(self, new, on_merge):
        # Flink maps a window that equals a known one to itself, and so loses the known one's state if that
        # is stored under another window. This happens with gaps that differ between rows.
        if new in self.mapping:
            return new
        result = new
        for cover, parts in merge_windows([*self.mapping, new]):
            parts.discard(new)
            result = cover
            sources = [self.mapping.pop(part) for part in sorted(parts)]
            state_window = self.mapping[cover] = sources.pop(0)
            if parts != {cover}:
                on_merge(cover, sorted(parts), state_window, sources)
        if result == new and new not in self.mapping:
            self.mapping[new] = new
        return result


# ---------------------------------------------------------------- the operator


class State(dict):
    """A state by key and namespace; ``None`` if it is empty."""

    def append(self, key, window, value):
        self.setdefault((key, window), []).append(value)

    def clear_at(self, key, window):
        self.pop((key, window), None)

    def merge(self, key, target, sources):
        values = [self.pop((key, window), []) for window in (target, *sources)]
        if any(values):
            self[key, target] = [value for part in values for value in part]


class WindowOperator:
    """``WindowOperator``; ``emit`` is the window function, ``late`` creates the side output.

    Attributes:
        output: the output since the last time that a test took it.
        of_window, of_key: the window function's state of the window and of the key.
    """

    def __init__(
        self, assign, trigger, emit, late, evictor, *, is_event, is_merging, lateness, timers
    ):
        self.evictor = evictor
        self.assign, self.trigger, self.emit, self.late = assign, trigger, emit, late
        self.is_event, self.is_merging, self.lateness = is_event, is_merging, lateness
        self.domain = EVENT if is_event else PROCESSING
        self.timers = timers
        self.contents, self.trigger_state, self.of_window = State(), State(), State()
        self.of_key, self.merging = {}, {}
        self.window = GLOBAL
        self.output = []

    # methods that triggers use

    @property
    def key(self):
        return self.timers.key

    def register(self, domain, time):
        self.timers.register(domain, time, self.window)

    def delete(self, domain, time):
        # In Flink, a trigger that deletes a timer for the time at which the window is dropped also deletes
        # the window's own timer, so its state is never dropped.
        if (domain, time) != (self.domain, self.cleanup_time(self.window)):
            self.timers.delete(domain, time, self.window)

    # elements

    def process_element(self, key, row, timestamp):
        self.timers.key = key
        timestamp = MIN if timestamp is None else timestamp
        assigned = self.assign(row, timestamp if self.is_event else self.timers.now)
        add = self.add_merging if self.is_merging else self.add
        handled = [add(window, row, timestamp) for window in assigned]
        late = self.is_event and timestamp + self.lateness <= self.timers.watermark
        if not any(handled) and late and self.late is not None:
            self.output.append(self.late(row))

    def add(self, window, row, timestamp):
        return not self.is_late(window) and self.added(window, window, row, timestamp)

    def add_merging(self, window, row, timestamp):
        windows = MergingWindowSet(self.merging.setdefault(self.key, {}))
        actual = windows.add_window(window, self.on_merge)
        if self.is_late(actual):
            self.retire(actual)
            return False
        return self.added(actual, windows.mapping[actual], row, timestamp)

    def on_merge(self, cover, parts, state_window, sources):
        now = self.timers.watermark if self.is_event else self.timers.now
        if cover.max_timestamp() + (self.lateness if self.is_event else 0) <= now:
            raise AssertionError("the end of a window cannot become earlier by merging")
        self.window = cover
        self.trigger.on_merge(parts, self)
        for part in parts:
            self.window = part
            self.trigger.clear(self)
            self.timers.delete(self.domain, self.cleanup_time(part), part)
        self.contents.merge(self.key, state_window, sources)

    def added(self, window, state_window, row, timestamp):
        self.contents.append(self.key, state_window, {**row, "at": timestamp})
        self.window = window
        result = self.trigger.on_element(row, timestamp, self)
        self.act(result, window, state_window)
        if self.cleanup_time(window) != MAX:
            self.timers.register(self.domain, self.cleanup_time(window), window)
        return True

    def act(self, result, window, state_window):
        held = self.contents.get((self.key, state_window))
        if result in (FIRE, FIRE_AND_PURGE) and held is not None:
            before, after = self.evictor
            held = before(held)
            self.output += self.emit(self, self.key, window, held)
            self.contents.clear_at(self.key, state_window)
            for row in after(held):
                self.contents.append(self.key, state_window, row)
        if result in (PURGE, FIRE_AND_PURGE):
            self.contents.clear_at(self.key, state_window)

    # time

    def on_timer(self, domain, time, key, window):
        state_window = self.merging.get(key, {}).get(window) if self.is_merging else window
        if state_window is None:
            return  # a timer of a dropped window, which a trigger has left behind
        self.window = window
        self.act(self.trigger.on_time(domain, time, self), window, state_window)
        if domain == self.domain and time == self.cleanup_time(window):
            self.contents.clear_at(key, state_window)
            self.trigger.clear(self)
            self.of_window.clear_at(key, window)
            if self.is_merging:
                self.retire(window)

    def retire(self, window):
        mapping = self.merging[self.key]
        del mapping[window]
        if not mapping:
            del self.merging[self.key]

    def cleanup_time(self, window):
        lateness = self.lateness if self.is_event else 0
        return min(window.max_timestamp() + lateness, MAX)

    def is_late(self, window):
        return self.is_event and self.cleanup_time(window) <= self.timers.watermark

    def entries(self):
        """Return the number of entries of states."""
        states = (self.contents, self.trigger_state, self.of_window, self.of_key, self.merging)
        return sum(map(len, states))
