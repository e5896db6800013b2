"""Random window programs: the same job for Millpond and the port of Flink, and its input.

A seed decides everything: assigner, trigger, window content, lateness, side output and backend;
rows (late, out of order, at equal times, of several keys, before and after 1970, without a time),
watermarks, clock times, and restores from snapshots and savepoints at some parallelism. At the end
time passes, in some programs to the largest time.
"""

import random
from functools import cache

import attrs
import millpond as mp
from millpond import windows

from tests.windows import flink_triggers, flink_windows
from tests.windows.window_parts import KEYS, assigners, contents, evictors, triggers, whole

GROUPS = 8
FAR = 300
LONG = 1 << 40


@cache
def group_of(key):
    return mp.assign_to_key_group(key, GROUPS)


# ---------------------------------------------------------------- programs


@attrs.frozen
class Program:
    """A job and its input.

    Attributes:
        about: the parts of the job, for messages.
        everlasting: whether state may remain at the end of time.
    """

    function: mp.KeyedProcessFunction
    reference: flink_windows.WindowOperator
    backend: str
    steps: list
    about: str
    everlasting: bool
    window_type: type


def steps(rng, lateness, *, timeless):
    """Return random rows and times, often at the limit of lateness; at the end all times have passed.

    Many rows have the previous row's key and nearly its time, as in sorted input.
    """
    base = rng.choice((0, 0, -319, 10**12))
    event, clock, found = base + rng.randint(-30, 30), 0, []
    watermark = event
    for _ in range(rng.randint(5, 60)):
        match rng.choices(("row", "watermark", "clock", "restore"), (10, 3, 3, 0.6))[0]:
            case "row":
                event += rng.randint(-1, 3)
                edge = watermark - lateness % LONG + rng.randint(-1, 1)
                moment = edge if rng.random() < 0.3 else event + rng.randint(-25, 6)
                moment = None if timeless and rng.random() < 0.2 else moment
                key = rng.choice(KEYS)
                found.append(("row", key, rng.randrange(100), moment))
                while moment is not None and rng.random() < 0.4:
                    moment += rng.randint(-2, 4)
                    found.append(("row", key, rng.randrange(100), moment))
            case "watermark":
                watermark = event + rng.randint(-15, 4)
                found.append(("watermark", watermark))
            case "clock":
                clock += rng.randint(0, 8)
                found.append(("clock", clock))
            case "restore":
                form = rng.choice(("snapshot", "savepoint"))
                found.append(("restore", form, rng.choice((1, 1, 2, 3))))
    end = flink_windows.MAX if lateness == LONG or rng.random() < 0.5 else max(base, 0) + FAR + 9
    far = (("watermark", base + FAR), ("clock", clock + 40))
    return [*found, *far, ("watermark", end), ("clock", clock + 80)]


def innermost(port):
    """Return the innermost of the port's nested triggers."""
    while hasattr(port, "inner"):
        port = port.inner
    return port


def program(seed, backends):
    """Return the program of a seed, on one of the backends."""
    rng = random.Random(seed)
    backend = rng.choice(backends)
    assigner, assign = assigners(rng)
    trigger, port = triggers(rng, assigner)
    lateness = rng.choice((0, 0, 0, 1, 1, 4, 4, 20, 20, LONG))
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
        steps=steps(rng, lateness, timeless=not assigner.is_event_time),
        about=f"seed {seed} on {backend}: {shown}",
        # a key's state remains, and so does state that a wild trigger writes for dropped windows
        everlasting=wild or emit is whole or assign is flink_windows.all_in_one,
        window_type=assigner.window_type,
    )
