"""The generation of programs: the steps, their frequencies, and their random arguments."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from millpond_conformance.wide.world import TIMES, World

Step = tuple[Any, ...]
"""The name of a method of `Side`, the number of the backend, and the arguments of the method."""

Event = tuple[str, bool, tuple[Step, ...]]
"""The outcome of a snapshot, whether changes are made while it is written, and the changes."""

SIDES = 2
"""The number of backends in a program."""

_SECOND = 0.25
"""The probability that a step runs on the second backend."""

_MAP_READS = ("get", "getitem", "contains", "items", "keys", "values", "is_empty")
_WITH_FUNCTIONS = ("reducing", "aggregating", "folding")
MERGING = ("list", "reducing", "aggregating")
_FATES = ("confirm", "confirm", "confirm", "confirm", "abort", "lose", "cancel")
_CHANGES = (
    *("write", "write", "extend", "rewrite", "clear", "clear_held", "put", "put", "remove"),
    *("unite", "timer", "untimer", "write_many", "clear_many", "wait", "operate", "repeat"),
)
_MANY = (1000, 1001, 1024, 1025, 2049)


class _Drawing:
    """A source of random arguments for steps."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world, self.draw = world, draw

    def below(self, count: int) -> int:
        return self.draw.randrange(count)

    def state(self) -> int:
        return self.below(len(self.world.states))

    def key(self) -> int:
        """Return a random index of a key. Low indexes are frequent, so some keys change often."""
        return min(self.below(len(self.world.keys)), self.below(len(self.world.keys)))

    def space(self) -> int:
        return self.below(len(self.world.spaces))

    def place(self) -> tuple[int, int, int]:
        return self.state(), self.key(), self.space()

    def place_in(self, *kinds: str) -> tuple[int, int, int]:
        """Return random indexes of a state, a key and a namespace.

        If the world has a state of one of `kinds`, the index is that of such a state.
        """
        fit = [n for n, spec in enumerate(self.world.states) if spec.kind in kinds]
        return self.draw.choice(fit or [self.state()]), self.key(), self.space()

    def map_place(self) -> tuple[int, int, int]:
        return self.place_in("map")

    def number(self) -> int:
        return self.below(100)

    def blow(self) -> int:
        """Return the random number of a call at which a user's function must fail; 0 for none."""
        return self.draw.choice((0, 0, 0, 1, 1, 2))

    def events(self) -> tuple[Event, ...]:
        """Return random events of a history. Some events repeat the changes of the last event."""
        events: list[Event] = []
        for _ in range(self.draw.choice((1, 1, 2, 2, 3, 5, 9, 15, 30))):
            changes = self._changes()
            if events and self.below(4) == 0:
                again = tuple(step for step in events[-1][2] if step[0] != "wait")
                changes = (("wait", self.draw.choice((1, 400, 900))), *again)
            overlapped = self.below(3) == 0
            if overlapped:
                changes += (("operate", *_STEPS["operate"][1](self)),)
            events.append((self.draw.choice(_FATES), overlapped, changes))
        return tuple(events)

    def _changes(self) -> tuple[Step, ...]:
        """Return up to three random changes of states, or one change of an operator state."""
        if self.below(8) == 0:
            return (("operate", *_STEPS["operate"][1](self)),)
        names = self.draw.choices(_CHANGES, k=self.draw.choice((0, 1, 1, 2, 3)))
        return tuple((name, *_STEPS[name][1](self)) for name in names)

    def keys(self) -> tuple[int, ...]:
        """Return random indexes of keys, from none to all. An index may occur more than once."""
        return tuple(self.key() for _ in range(self.below(len(self.world.keys) + 1)))

    def sources(self) -> tuple[int, ...]:
        """Return indexes of namespaces: up to five with repetitions, or all in random order."""
        spaces = len(self.world.spaces)
        if self.below(2):
            return tuple(self.draw.sample(range(spaces), spaces))
        return tuple(self.space() for _ in range(self.below(6)))

    def filled(self) -> int:
        """Return namespaces to write to, as a bit mask; in half of the cases all of them."""
        every = (1 << len(self.world.spaces)) - 1
        return self.draw.choice((every, self.below(every + 1)))

    def apart(self) -> int:
        """Return a number of milliseconds between two writes; in half of the cases 0."""
        return self.draw.choice((0, 0, 1, 30, 300))

    def time(self) -> int:
        return self.below(len(TIMES))


_STEPS: dict[str, tuple[float, Callable[[_Drawing], tuple[Any, ...]]]] = {
    "write": (9, lambda d: (*d.place(), d.number(), d.blow())),
    "extend": (2, lambda d: (*d.place(), d.below(4), d.number())),
    "blow_up": (1, lambda d: (*d.place_in(*_WITH_FUNCTIONS), d.number())),
    "refuse": (1, lambda d: d.place()),
    "clear": (1, lambda d: d.place()),
    "rewrite": (1, lambda d: (*d.place(), d.number())),
    "read": (4, lambda d: d.place()),
    "put": (8, lambda d: (*d.map_place(), d.below(6), d.number())),
    "put_all": (1, lambda d: (*d.map_place(), d.below(5), d.number())),
    "remove": (4, lambda d: (*d.map_place(), d.below(6), d.below(2))),
    "look": (8, lambda d: (*d.map_place(), d.draw.choice(_MAP_READS), d.below(6))),
    "iterate": (5, lambda d: d.map_place()),
    "proceed": (9, lambda d: (d.below(3),)),
    "merge": (2, lambda d: (*d.place_in(*MERGING), d.sources(), d.blow())),
    "unite": (
        3,
        lambda d: (
            *d.place_in(*MERGING),
            d.sources(),
            d.blow(),
            d.filled(),
            d.draw.choice((0, 1, 300)),
        ),
    ),
    "outlive": (0.5, lambda d: (d.state(), d.key())),
    "write_many": (1.5, lambda d: (d.state(), d.space(), d.keys(), d.number())),
    "read_many": (1.5, lambda d: (d.state(), d.space(), d.keys())),
    "frames": (1, lambda d: (d.state(), d.space(), d.number())),
    "clear_many": (0.5, lambda d: (d.state(), d.space(), d.keys())),
    "clear_held": (0.5, lambda d: (d.state(),)),
    "enumerate": (1.5, lambda d: (d.state(),)),
    "apply": (0.5, lambda d: (d.state(), d.space(), d.blow())),
    "flush": (2, lambda d: (d.below(3),)),
    "wait": (1.5, lambda d: (d.draw.choice((1, 400, 900, 1000, 1001, 2500)),)),
    "timer": (3, lambda d: (d.below(2), d.key(), d.space(), d.time())),
    "ties": (0.7, lambda d: (d.below(2), d.key(), d.time())),
    "untimer": (1.5, lambda d: (d.below(2), d.below(60))),
    "fire": (1.5, lambda d: (d.below(2), d.time(), d.key(), d.space(), d.time())),
    "earliest": (1, lambda d: (d.below(2),)),
    "take_all": (0.2, lambda d: (d.below(2),)),
    "history": (1.2, lambda d: (d.events(), d.below(30))),
    "begin": (0.6, lambda _: ()),
    "settle": (0.6, lambda d: (d.below(4),)),
    "subsume": (1.2, lambda _: ()),
    "crash": (0.6, lambda d: (d.below(2), d.below(6))),
    "rescale": (0.7, lambda d: (d.below(4), d.below(1000), d.below(1000))),
    "reopen": (0.4, lambda d: (d.below(6), d.below(4))),
    "savepoint": (0.2, lambda _: ()),
    "fill": (0.4, lambda d: (*d.place_in("map", "list"), d.draw.choice(_MANY), d.below(3))),
    "many_timers": (0.25, lambda d: (d.below(2), d.key(), d.space(), d.draw.choice(_MANY))),
    "operate": (0.5, lambda d: (d.below(4), d.number())),
    "repeat": (0.7, lambda d: (*d.place(), d.number(), d.apart())),
    "count": (0.5, lambda _: ()),
    "compare": (0.5, lambda _: ()),
}
"""The frequency of each kind of step, and the function that draws its arguments."""


def generate(world: World) -> list[Step]:
    """Return the steps of a program, generated from the seed of the world."""
    draw = random.Random(f"steps {world.seed}")  # noqa: S311 - a program, no secret
    drawing = _Drawing(world, draw)
    weights = [weight for weight, _ in _STEPS.values()]
    steps: list[Step] = []
    for name in draw.choices([*_STEPS], weights, k=world.steps):
        # The second backend has fewer steps, so that each backend has changes to lose.
        side = int(draw.random() < _SECOND)
        steps.append((name, side, *_STEPS[name][1](drawing)))
    return steps
