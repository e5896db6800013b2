"""Random parts of windows, in pairs: Millpond's and those of the port of Flink."""

import math
import operator
from contextlib import suppress

import attrs
import millpond as mp
from millpond import errors, windows

from tests.windows import flink_triggers, flink_windows
from tests.windows.stretches import STRETCHES, OfKind
from tests.windows.window_triggers import Wild

KEYS = "abcde"


@attrs.frozen
class GapByNumber:
    """Session gap of 1 to ``most`` ms, from the row's number."""

    most: int

    def __call__(self, row):
        return row.n % self.most + 1


def assigners(rng):
    """Return a random Millpond assigner and the port's function."""
    ours, theirs = times(rng)
    if rng.random() < 0.15 and not isinstance(ours, windows.GlobalWindows):
        ours = OfKind(ours, rng.choice(STRETCHES))
    return ours, theirs


def times(rng):
    """Return a random pair of time windows."""
    size, slide, offset = rng.randint(1, 12), rng.randint(1, 12), rng.randint(-9, 9)
    event = rng.random() < 0.5
    tumbling = (windows.TumblingProcessingTimeWindows, windows.TumblingEventTimeWindows)[event]
    sliding = (windows.SlidingProcessingTimeWindows, windows.SlidingEventTimeWindows)[event]
    session = (windows.ProcessingTimeSessionWindows, windows.EventTimeSessionWindows)[event]
    match rng.randrange(6):
        case 0:
            offset %= size
            return tumbling.of(size, offset), flink_windows.tumbling(size, offset)
        case 1:
            offset = -(offset % slide)
            return sliding.of(size, slide, offset), flink_windows.sliding(size, slide, offset)
        case 2 | 3:
            return session.with_gap(size), flink_windows.session(lambda row: size)
        case 4:
            return (
                session.with_dynamic_gap(GapByNumber(size)),
                flink_windows.session(lambda row: row["n"] % size + 1),
            )
    return windows.GlobalWindows.create(), flink_windows.all_in_one


def triggers(rng, assigner):
    """Return a random Millpond trigger (None for the assigner's own) and the port's."""
    event, everlasting = assigner.is_event_time, isinstance(assigner, windows.GlobalWindows)
    number = rng.randint(1, 5)
    by_event = (windows.EventTimeTrigger(), flink_triggers.EventTime())
    by_clock = (windows.ProcessingTimeTrigger(), flink_triggers.ProcessingTime())
    own = (None, flink_triggers.Never() if everlasting else (by_clock, by_event)[event][1])
    pairs = [
        own,
        own,
        by_event,
        by_clock,
        (windows.CountTrigger.of(number), flink_triggers.Count(number)),
        (Wild(), flink_triggers.Wild()),
        (
            windows.ContinuousEventTimeTrigger.of(number),
            flink_triggers.ContinuousEventTime(number),
        ),
    ]
    continuous = flink_triggers.ContinuousProcessingTime(number)
    pairs.append((windows.ContinuousProcessingTimeTrigger.of(number), continuous))
    if not assigner.is_merging:
        delta = windows.DeltaTrigger.of(number, difference, int, "n")
        pairs.append((delta, flink_triggers.Delta(number, difference)))
    ours, theirs = rng.choice(pairs)
    while ours is not None and rng.random() < 0.35:
        if assigner.is_merging or rng.random() < 0.5:
            ours, theirs = windows.PurgingTrigger.of(ours), flink_triggers.Purging(theirs)
        else:
            reset, clears = rng.random() < 0.5, rng.random() < 0.5
            ours = windows.ProcessingTimeoutTrigger.of(ours, number, reset, clears)
            theirs = flink_triggers.ProcessingTimeout(theirs, number, reset, clears)
    return ours, theirs


def difference(first, second):
    """Return the difference of two numbers; NaN for some."""
    return math.nan if (first + second) % 5 == 0 else second - first


def nearness(first, second):
    """Return the difference in parts, without a sign."""
    return abs(difference(first, second)) / 9


class Mean(mp.AggregateFunction):
    """Aggregate function of number and sum, whose merge changes its second argument."""

    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Whole(windows.ProcessWindowFunction):
    """Window function that yields all elements, the firings of window and key, and both times.

    It leaves another key current.
    """

    of_window = mp.ReducingStateDescriptor("of-window", operator.add, int)
    of_key = mp.ReducingStateDescriptor("of-key", operator.add, int)

    def __init__(self, *, merging):
        self.merging = merging

    def process(self, key, context, elements):
        fired = 0
        if not self.merging:
            context.window_state(self.of_window).add(1)
            fired = context.window_state(self.of_window).get()
        context.global_state(self.of_key).add(1)
        times = (context.current_watermark(), context.current_processing_time())
        # the order of a merged window's elements is unspecified
        shown = sorted(elements) if self.merging else list(elements)
        window = context.window
        of_key = context.global_state(self.of_key)
        yield key, window.start, window.end, fired, of_key.get(), *times, shown
        self.wander(of_key)

    def clear(self, context):
        if not self.merging:
            context.window_state(self.of_window).clear()
        self.wander(context.global_state(self.of_key))

    def wander(self, state):
        """Select the subtask's last key."""
        for key in KEYS:
            with suppress(errors.KeyGroupRangeError):
                state.at(key)


def whole(at, key, window, rows):
    """The port's ``Whole``."""
    numbers = [row["n"] for row in rows]
    fired = 0
    if not at.is_merging:
        at.of_window.append(key, window, 1)
        fired = len(at.of_window[key, window])
    at.of_key[key] = at.of_key.get(key, 0) + 1
    shown = sorted(numbers) if at.is_merging else numbers
    times = (at.timers.watermark, at.timers.now)
    return [(key, *window, fired, at.of_key[key], *times, shown)]


def evictors(rng, *, merging):
    """Return a random Millpond evictor (None for none), and the port's rules before and after."""
    none = flink_windows.none_evicted
    if rng.random() < 0.6:
        return None, (none, none)
    number, after = rng.randint(0, 6), rng.random() < 0.5
    pairs = [(windows.TimeEvictor.of, (number,), flink_windows.evict_by_time(number))]
    if not merging:  # the order of a merged window's elements is unspecified
        far = flink_windows.evict_by_delta(number, lambda row, last: nearness(row["n"], last["n"]))
        delta = (number, nearness)
        pairs.append((windows.CountEvictor.of, (number,), flink_windows.evict_by_count(number)))
        pairs.append((windows.DeltaEvictor.of, delta, far))
    make, arguments, rule = rng.choice(pairs)
    return make(*arguments, do_evict_after=after), ((none, rule) if after else (rule, none))


def window_row(key, window, value):
    """Return a window's output, with the parts of user-defined windows."""
    yield key, window.start, window.end, *(value if isinstance(value, tuple) else (value,))


def summed(at, key, window, rows):
    """The port's sum."""
    return [(key, *window, sum(row["n"] for row in rows))] if rows else []


def mean(at, key, window, rows):
    """The port's ``Mean``."""
    return [(key, *window, len(rows), sum(row["n"] for row in rows))]


def contents(rng, windowing, *, merging):
    """Return a random function of Millpond, and the port's window function."""
    match rng.randrange(3):
        case 0:
            return windowing.reduce(operator.add, int, "n", window_row), summed
        case 1:
            types = {"accumulator_type": tuple[int, int], "element_type": int}
            function = Mean()
            return windowing.aggregate(
                function, window_function=window_row, **types, value="n"
            ), mean
    return windowing.process(Whole(merging=merging), int, "n"), whole
