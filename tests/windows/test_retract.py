"""``AggregateFunction.retract``: windows with an evictor come to the same as by aggregating anew."""

import random

import attrs
import millpond as mp
import pytest
from millpond import windows

BACKENDS = ["heap", "rocksdb", "lmdb"]


class Anew(mp.AggregateFunction):
    """How often each value is there; a dictionary that is changed in place, and handed out."""

    def create_accumulator(self):
        return {}

    def add(self, value, accumulator):
        accumulator[value] = accumulator.get(value, 0) + 1
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return {value: a.get(value, 0) + b.get(value, 0) for value in {**a, **b}}


class Retracting(Anew):
    """The same, and how often it was called."""

    def __init__(self):
        self.added = self.retracted = 0

    def add(self, value, accumulator):
        self.added += 1
        return super().add(value, accumulator)

    def retract(self, value, accumulator):
        self.retracted += 1
        accumulator[value] -= 1
        if not accumulator[value]:
            del accumulator[value]
        return accumulator


class Odd(windows.Evictor):
    """Drops elements in the middle, and more after the firing."""

    def evict_before(self, elements, window, ctx):
        return [element for element in elements if element.value % 3]

    def evict_after(self, elements, window, ctx):
        return [element for element in elements if element.value % 2]


class Replacing(windows.Evictor):
    """Gives other elements than it got, in another order."""

    def evict_before(self, elements, window, ctx):
        return [element._replace(value=element.value + 1) for element in elements[1:]]

    def evict_after(self, elements, window, ctx):
        return sorted(elements, reverse=True)


def windowing(rng):
    """Windows with an evictor, by chance."""
    number, after = rng.randint(1, 6), rng.random() < 0.5
    evictor = rng.choice(
        [
            windows.CountEvictor.of(number, do_evict_after=after),
            windows.TimeEvictor.of(number, do_evict_after=after),
            windows.DeltaEvictor.of(number, lambda value, last: last - value, do_evict_after=after),
            Odd(),
            Replacing(),
        ]
    )
    assigner = rng.choice(
        [
            windows.TumblingEventTimeWindows.of(20),
            windows.SlidingEventTimeWindows.of(30, 10),
            windows.EventTimeSessionWindows.with_gap(4),
            windows.GlobalWindows.create(),
        ]
    )
    made = windows.window(assigner).evictor(evictor).allowed_lateness(rng.choice((0, 30)))
    count = windows.CountTrigger.of(rng.randint(1, 3))
    trigger = rng.choice([count, count, windows.PurgingTrigger.of(count), None])
    everlasting = isinstance(assigner, windows.GlobalWindows)
    return made.trigger(trigger or count) if trigger or everlasting else made


def steps(rng):
    """Rows, watermarks and restores."""
    time = 0
    for _ in range(60):
        time += rng.randint(0, 3)
        yield rng.choice("rrrrrrrw" if rng.random() < 0.95 else "s"), time, rng.randrange(9)


def played(function, program, backend, make_key=str):
    """What a program yields."""
    options = {
        "key": lambda row: make_key(row.k),
        "key_type": make_key,
        "backend": backend,
    }
    output, snapshot, rest = [], None, list(program)
    while rest:
        with mp.testing.KeyedOperatorHarness(function, restore=snapshot, **options) as harness:
            while rest:
                step, time, number = rest.pop(0)
                if step == "r":
                    harness.process({"k": "ab"[number % 2], "n": number}, time - number % 4)
                elif step == "w":
                    harness.advance_watermark(time)
                else:
                    break
            snapshot = harness.snapshot()
            output += harness.output
    return output


def aggregating(seed, function):
    """Windows of a seed with a function."""
    made = windowing(random.Random(seed))
    shown = lambda key, window, counts: [(key, window, counts)]  # noqa: E731
    return made.aggregate(function, dict[int, int], shown, element_type=int, value="n")


def test_generated_programs_give_the_same():
    """Assigners, evictors, triggers, merges, late rows, restores: no difference to aggregating anew."""
    counting = Retracting()
    for seed in range(50):
        rng = random.Random(seed)
        program, backend = list(steps(rng)), rng.choice(BACKENDS)
        found = played(aggregating(seed, counting), program, backend)
        assert found == played(aggregating(seed, Anew()), program, backend), seed
    assert counting.retracted > 200


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_what_changes_is_added_and_retracted(backend):
    """A window of the last hundred rows adds each row once, and takes each out once."""
    counting = Retracting()
    function = windows.count_window(100, 1).aggregate(
        counting, dict[int, int], element_type=int, value="n"
    )
    rows = [{"k": "a", "n": n} for n in range(150)]
    mp.local.run(function, rows, key="k", backend=backend)
    assert (counting.added, counting.retracted) == (150, 50)


@attrs.frozen
class Caseless:
    """A key that Python calls equal to others, which are keys of their own."""

    text: str = attrs.field(eq=str.lower)


def test_keys_with_an_equality_of_their_own_are_aggregated_anew():
    """Two keys never share an accumulator."""
    program = [("r", at, at % 5) for at in range(40)]
    counting = Retracting()
    found = played(aggregating(7, counting), program, "heap", Caseless)
    assert found == played(aggregating(7, Anew()), program, "heap", Caseless)
    assert counting.retracted == 0
