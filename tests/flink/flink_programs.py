"""Random programs for Millpond and for Apache Flink: a keyed operator and its input.

A program is a dict of plain values, which ``Programs.java`` reads as JSON, and a Millpond function.
The operator is a window operator of random parts, or ``Operations``, a function that follows the
rows' instructions: it reads and writes every kind of state, and sets and deletes timers of both
kinds.
"""

import operator
import random
from datetime import timedelta

import attrs
import millpond as mp
from millpond import windows
from millpond.windows import ContinuousEventTimeTrigger, EventTimeTrigger, ProcessingTimeTrigger

from tests.windows.window_parts import GapByNumber, Mean, assigners, evictors, triggers
from tests.windows.window_programs import innermost, steps
from tests.windows.window_triggers import Wild

SIDE = mp.OutputTag("side")
READS = {
    "value": lambda states, n: states.value.value(),
    "list": lambda states, n: list(states.list.get()),
    "map get": lambda states, n: states.map.get(n % 4),
    "map contains": lambda states, n: states.map.contains(n % 4),
    "map items": lambda states, n: sorted(states.map.items()),
    "map is_empty": lambda states, n: states.map.is_empty(),
    "sum": lambda states, n: states.sum.get(),
    "mean": lambda states, n: states.mean.get(),
}
WRITES = {
    "value update": lambda states, n: states.value.update(n),
    "list add": lambda states, n: states.list.add(n),
    "list add_all": lambda states, n: states.list.add_all([n, n + 1]),
    "list update": lambda states, n: states.list.update([] if n % 3 == 0 else [n]),
    "map put": lambda states, n: states.map.put(n % 4, n),
    "map put_all": lambda states, n: states.map.put_all({n % 4: n, (n + 1) % 4: n}),
    "map remove": lambda states, n: states.map.remove(n % 4),
    "sum add": lambda states, n: states.sum.add(n),
    "mean add": lambda states, n: states.mean.add(n),
}
CLEARS = {
    "value clear": lambda states, n: states.value.clear(),
    "list clear": lambda states, n: states.list.clear(),
    "map clear": lambda states, n: states.map.clear(),
    "sum clear": lambda states, n: states.sum.clear(),
    "mean clear": lambda states, n: states.mean.clear(),
}
TIMERS = {
    "event set": lambda timers, event, now: timers.register_event_time_timer(event),
    "event delete": lambda timers, event, now: timers.delete_event_time_timer(event),
    "clock set": lambda timers, event, now: timers.register_processing_time_timer(now),
    "clock delete": lambda timers, event, now: timers.delete_processing_time_timer(now),
}


@attrs.frozen
class Program:
    """An operator and its input.

    Attributes:
        plain: the program as Flink gets it.
        function: the operator of Millpond.
    """

    plain: dict
    function: mp.KeyedProcessFunction


def program(seed):
    """Return the program of a seed: windows for three of five seeds, otherwise a keyed function."""
    rng = random.Random(seed)
    return windowed(rng) if seed % 5 < 3 else operations(rng)


def described(part):
    """Return a part of a window operator as plain values for Flink."""
    if not attrs.has(type(part)):
        return part
    fields = {field.name: getattr(part, field.name) for field in attrs.fields(type(part))}
    plain = {name: described(value) for name, value in fields.items() if is_plain(value)}
    return {"type": type(part).__name__, **plain}


def is_plain(value):
    """Return whether Flink gets a field; functions of differences exist in its program already."""
    return isinstance(value, int | float | windows.Trigger | GapByNumber)


def parts(rng):
    """Return assigner, trigger and evictor, without the differences listed in docs/reference/windows.md."""
    while True:
        assigner = assigners(rng)[0]
        trigger = triggers(rng, assigner)[0]
        evictor = evictors(rng, merging=assigner.is_merging)[0]
        if is_flinks(assigner, trigger) and not may_never_end(assigner, trigger):
            return assigner, trigger, evictor


def is_flinks(assigner, trigger):
    """Return whether Flink has both parts and accepts the combination."""
    if isinstance(innermost(trigger), Wild) or assigner.window_type is not windows.TimeWindow:
        return False
    of_time = isinstance(innermost(trigger), EventTimeTrigger | ProcessingTimeTrigger)
    return not (of_time and isinstance(assigner, windows.GlobalWindows))


def may_never_end(assigner, trigger):
    """Return whether the trigger may fire without end in Flink, or delete the timer of a window's end."""
    by_event = isinstance(innermost(trigger), EventTimeTrigger | ContinuousEventTimeTrigger)
    if assigner.is_event_time:
        return by_event and "ProcessingTimeoutTrigger" in repr(trigger)
    if isinstance(innermost(trigger), ContinuousEventTimeTrigger):
        return True
    everlasting = isinstance(assigner, windows.GlobalWindows)
    return "ProcessingTimeoutTrigger" in repr(trigger) and not everlasting


def windowed(rng):
    """Return a window operator of random parts, and its input."""
    assigner, trigger, evictor = parts(rng)
    plain = {
        "assigner": described(assigner),
        "trigger": described(trigger),
        "evictor": described(evictor),
        "merging": assigner.is_merging,
        "lateness": rng.choice((0, 0, 0, 1, 1, 4, 4, 20, 20)),
        "late": rng.random() < 0.7,
        "contents": rng.choice(("reduce", "aggregate", "process")),
    }
    # Flink's TimeEvictor fails if only some rows of a window have an event time.
    timeless = not assigner.is_event_time and "TimeEvictor" not in repr(evictor)
    plain["steps"] = window_steps(rng, plain["lateness"], timeless=timeless)
    most = getattr(getattr(assigner, "gap", None), "most", 1)
    gaps_by_time(plain["steps"], most, by_event=assigner.is_event_time)
    windowing = windows.window(assigner)
    windowing = windowing if trigger is None else windowing.trigger(trigger)
    windowing = windowing if evictor is None else windowing.evictor(evictor)
    return Program(plain, window_operator(windowing, plain))


def gaps_by_time(steps, most, *, by_event):
    """Change the rows' numbers so that rows of the same time have the same session gap.

    Otherwise a row's window may equal a session that has grown, whose state Flink loses.
    """
    clock = 0
    for step in steps:
        if step[0] == "clock":
            clock = max(clock, step[1])
        elif step[0] == "row":
            time = step[3] if by_event else clock
            step[2] += (time - step[2]) % most


def window_operator(windowing, plain):
    """Return the window operator of Millpond with the window function ``Fired``."""
    windowing = windowing.allowed_lateness(plain["lateness"])
    windowing = windowing.side_output_late_data(SIDE) if plain["late"] else windowing
    fired = Fired(merging=plain["merging"], lists=plain["contents"] == "process")
    match plain["contents"]:
        case "reduce":
            return windowing.reduce(operator.add, int, "n", fired)
        case "aggregate":
            types = {"accumulator_type": tuple[int, int], "element_type": int}
            return windowing.aggregate(Mean(), window_function=fired, **types, value="n")
    return windowing.process(fired, int, "n")


def window_steps(rng, lateness, *, timeless):
    """Return the steps of a window program, without restores, up to the end of time."""
    made = steps(rng, lateness, timeless=timeless)
    kept = [list(step) for step in made if step[0] != "restore"]
    return [*kept, ["watermark", mp.MAX_TIMESTAMP]]


class Fired(windows.ProcessWindowFunction):
    """Window function that yields a window's content, the number of firings, and the times."""

    times = mp.ReducingStateDescriptor("times", operator.add, int)

    def __init__(self, *, merging, lists):
        self.merging, self.lists = merging, lists

    def process(self, key, context, elements):
        shown, fired = list(elements) if self.lists else [elements], None
        if self.merging:
            shown.sort()  # the order in merged windows is unspecified
        else:
            context.window_state(self.times).add(1)
            fired = context.window_state(self.times).get()
        times = context.current_watermark(), context.current_processing_time()
        yield key, tuple(context.window), fired, *times, shown

    def clear(self, context):
        if not self.merging:
            context.window_state(self.times).clear()


# ---------------------------------------------------------------- keyed functions


def operations(rng):
    """Return a keyed function, its instructions for timers, and rows with instructions."""
    ttl = None
    if rng.random() < 0.6:
        ttl = {
            "ms": rng.randint(1, 12),
            "update": rng.choice(("OnCreateAndWrite", "OnReadAndWrite", "Disabled")),
            "visibility": rng.choice(("NeverReturnExpired", "ReturnExpiredIfNotCleanedUp")),
        }
    reads = [name for name in READS if name not in unlike(ttl)]
    timers = [some(rng, reads, rng.randint(0, 4)) for _ in range(rng.randint(1, 5))]
    rows = window_steps(rng, 0, timeless=False)
    for step in rows:
        if step[0] == "row":
            step.append(some(rng, reads, rng.randint(1, 6)))
    return Program({"timers": timers, "ttl": ttl, "steps": rows}, Operations(timers, ttl))


def unlike(ttl):
    """Remove the reads that docs/explanation/flink.md lists as differences."""
    if ttl is None:
        return ()
    again = ttl["visibility"] == "ReturnExpiredIfNotCleanedUp"
    return ("map is_empty", "list") if again else ("map is_empty",)


def some(rng, reads, count):
    """Return random instructions, each with a number."""
    kinds = rng.choices((reads, WRITES, CLEARS, TIMERS, ["side"]), (6, 5, 1, 3, 1), k=count)
    return [[rng.choice(list(kind)), rng.randint(1, 15)] for kind in kinds]


class Operations(mp.KeyedProcessFunction):
    """Function that follows the instructions in rows, and on timers those of the program."""

    def __init__(self, timers, ttl):
        self.timers, self.ttl = timers, ttl

    def open(self, context):
        def expiring(descriptor):
            return descriptor if self.ttl is None else descriptor.enable_time_to_live(self.config())

        pair = tuple[int, int]
        self.value = context.get_state(expiring(mp.ValueStateDescriptor("value", int)))
        self.list = context.get_list_state(expiring(mp.ListStateDescriptor("list", int)))
        self.map = context.get_map_state(expiring(mp.MapStateDescriptor("map", int, int)))
        self.sum = context.get_reducing_state(
            expiring(mp.ReducingStateDescriptor("sum", operator.add, int))
        )
        mean = mp.AggregatingStateDescriptor("mean", Mean(), pair)
        self.mean = context.get_aggregating_state(expiring(mean))

    def config(self):
        """Return the TTL, built with the names of PyFlink."""
        builder = mp.StateTtlConfig.new_builder(timedelta(milliseconds=self.ttl["ms"]))
        builder = builder.set_update_type(
            getattr(mp.StateTtlConfig.UpdateType, self.ttl["update"])
        ).set_state_visibility(getattr(mp.StateTtlConfig.StateVisibility, self.ttl["visibility"]))
        return builder.disable_cleanup_in_background().build()

    def process_element(self, row, context):
        yield from self.run(row.operations, "row", context.timestamp, context)

    def on_timer(self, timestamp, context):
        cause = context.time_domain.name
        yield from self.run(self.timers[timestamp % len(self.timers)], cause, timestamp, context)

    def run(self, operations, cause, time, context):
        times = context.timer_service()
        watermark, now = times.current_watermark(), times.current_processing_time()
        read = []
        for name, n in operations:
            if name in READS:
                read.append(READS[name](self, n))
            elif name in TIMERS:
                # Up to the end of time, and from the clock's small times to the rows' times, there would be too
                # many timers that each set the next one.
                endless = watermark == mp.MAX_TIMESTAMP or cause == "PROCESSING_TIME"
                if name != "event set" or not endless:
                    TIMERS[name](times, time + n, now + n)
            elif name == "side":
                yield SIDE, (context.current_key, n)
            else:
                (WRITES | CLEARS)[name](self, n)
        yield context.current_key, cause, time, watermark, now, read
