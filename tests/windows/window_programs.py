"""Window programs by chance: the same job for Millpond and for the port of Flink, and its input.

A program is what a seed makes of it: an assigner, a trigger, what windows keep, lateness, a side
output, a backend; then rows (late, out of order, tied, of several keys), watermarks, moments of
the clock, and restores from snapshots and savepoints at some parallelism.
"""

import operator
import random
from functools import cache

import attrs
import flink_triggers
import flink_windows
import millpond as mp
from millpond import windows
from window_triggers import Wild

KEYS = "abcde"
GROUPS = 8
FAR = 600


@cache
def group_of(key):
    return mp.assign_to_key_group(key, GROUPS)


# ---------------------------------------------------------------- the parts, in pairs


def assigners(rng):
    """A Millpond assigner and the port's function, by chance."""
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
                session.with_dynamic_gap(lambda row: row.n % size + 1),
                flink_windows.session(lambda row: row["n"] % size + 1),
            )
    return windows.GlobalWindows.create(), flink_windows.all_in_one


def triggers(rng, assigner):
    """A Millpond trigger (None for the assigner's own) and the port's, by chance."""
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
        delta = windows.DeltaTrigger.of(number, lambda last, new: new - last, int, "n")
        pairs.append((delta, flink_triggers.Delta(number)))
    ours, theirs = rng.choice(pairs)
    if ours is not None and not assigner.is_merging and rng.random() < 0.2:
        reset, clears = rng.random() < 0.5, rng.random() < 0.5
        ours = windows.ProcessingTimeoutTrigger.of(ours, number, reset, clears)
        theirs = flink_triggers.ProcessingTimeout(theirs, number, reset, clears)
    if ours is not None and rng.random() < 0.3:
        return windows.PurgingTrigger.of(ours), flink_triggers.Purging(theirs)
    return ours, theirs


class Mean(mp.AggregateFunction):
    """Number and sum; merges change their second argument, as they may."""

    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Whole(windows.ProcessWindowFunction):
    """All elements, how often the window and the key have fired, and both times."""

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
        # The order of a merged window's elements is nobody's promise.
        shown = sorted(elements) if self.merging else list(elements)
        yield key, *context.window, fired, context.global_state(self.of_key).get(), *times, shown

    def clear(self, context):
        if not self.merging:
            context.window_state(self.of_window).clear()


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
    """An evictor of Millpond (None for none), and the port's rules before and after, by chance."""
    none = flink_windows.none_evicted
    if rng.random() < 0.6:
        return None, (none, none)
    number, after = rng.randint(0, 6), rng.random() < 0.5
    pairs = [(windows.TimeEvictor.of, (number,), flink_windows.evict_by_time(number))]
    if not merging:  # the order of a merged window's elements is nobody's promise
        far = flink_windows.evict_by_delta(number, lambda row, last: abs(row["n"] - last["n"]) / 9)
        delta = (number, lambda n, last: abs(n - last) / 9)
        pairs.append((windows.CountEvictor.of, (number,), flink_windows.evict_by_count(number)))
        pairs.append((windows.DeltaEvictor.of, delta, far))
    make, arguments, rule = rng.choice(pairs)
    return make(*arguments, do_evict_after=after), ((none, rule) if after else (rule, none))


def summed(at, key, window, rows):
    """The port's sum."""
    return [(key, *window, sum(row["n"] for row in rows))] if rows else []


def mean(at, key, window, rows):
    """The port's ``Mean``."""
    return [(key, *window, len(rows), sum(row["n"] for row in rows))]


def contents(rng, windowing, *, merging):
    """The function of Millpond, and the port's window function, by chance."""
    match rng.randrange(3):
        case 0:
            return windowing.reduce(operator.add, int, "n"), summed
        case 1:
            types = {"accumulator_type": tuple[int, int], "element_type": int}
            return windowing.aggregate(Mean(), **types, value="n"), mean
    return windowing.process(Whole(merging=merging), int, "n"), whole


# ---------------------------------------------------------------- programs


@attrs.frozen
class Program:
    """A job and its input.

    Attributes:
        about: what the job is made of, for messages.
        everlasting: whether something may be left when all times have passed.
    """

    function: mp.KeyedProcessFunction
    reference: flink_windows.WindowOperator
    backend: str
    steps: list
    about: str
    everlasting: bool


def steps(rng, lateness):
    """Rows and time, by chance, often at the edge of being late; at the end all times are over."""
    event, clock, found = rng.randint(-30, 30), 0, []
    watermark = event
    for _ in range(rng.randint(5, 60)):
        match rng.choices(("row", "watermark", "clock", "restore"), (10, 3, 3, 0.6))[0]:
            case "row":
                event += rng.randint(-1, 3)
                edge = watermark - lateness + rng.randint(-1, 1)
                moment = edge if rng.random() < 0.3 else event + rng.randint(-25, 6)
                found.append(("row", rng.choice(KEYS), rng.randrange(100), moment))
            case "watermark":
                watermark = event + rng.randint(-15, 4)
                found.append(("watermark", watermark))
            case "clock":
                clock += rng.randint(0, 8)
                found.append(("clock", clock))
            case "restore":
                form = rng.choice(("snapshot", "savepoint"))
                found.append(("restore", form, rng.choice((1, 1, 2, 3))))
    return [*found, ("watermark", FAR), ("clock", FAR), ("watermark", FAR + 9), ("clock", FAR + 9)]


def innermost(port):
    """The trigger of the port inside all others."""
    while hasattr(port, "inner"):
        port = port.inner
    return port


def program(seed, backends):
    """The program of a seed, on one of the backends."""
    rng = random.Random(seed)
    backend = rng.choice(backends)
    assigner, assign = assigners(rng)
    trigger, port = triggers(rng, assigner)
    lateness = rng.choice((0, 0, 1, 4, 20))
    windowing = windows.window(assigner).allowed_lateness(lateness)
    windowing = windowing if trigger is None else windowing.trigger(trigger)
    late = None
    if rng.random() < 0.7:
        windowing = windowing.side_output_late_data(lambda row: (row.k, "late", row.n))
        late = lambda row: (row["k"], "late", row["n"])  # noqa: E731
    merging = assigner.is_merging
    evictor, rules = evictors(rng, merging=merging)
    windowing = windowing if evictor is None else windowing.evictor(evictor)
    function, emit = contents(rng, windowing, merging=merging)
    reference = flink_windows.WindowOperator(
        assign,
        port,
        emit,
        late,
        rules,
        is_event=assigner.is_event_time,
        is_merging=merging,
        lateness=lateness,
        timers=flink_windows.TimerService(lambda key: (group_of(key), key), 0),
    )
    shown = (assigner, trigger or type(port), lateness, late is not None, evictor, emit.__name__)
    wild = isinstance(innermost(port), flink_triggers.Wild)
    return Program(
        function=function,
        reference=reference,
        backend=backend,
        steps=steps(rng, lateness),
        about=f"seed {seed} on {backend}: {shown}",
        # the state of a key stays, and so does what a wild trigger puts into dead windows
        everlasting=wild or emit is whole or assign is flink_windows.all_in_one,
    )
