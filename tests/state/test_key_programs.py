"""Generated programs over keys and namespaces give the same results on every backend and in plain Python.

Some namespaces are equal in Python but stored separately, or the reverse. Some calls for many keys
fail half-way in the users' functions.
"""

import math
import random
from datetime import timedelta
from decimal import Decimal

import attrs
import millpond as mp
import pytest
from millpond.types import key_codec_for

BACKENDS = ("heap", "rocksdb", "lmdb")
KEYS = ("a", "b", "c", "d")


@attrs.frozen
class Shift:
    """A window whose equality ignores a field."""

    start: int
    place: str = attrs.field(eq=False)


NAMESPACES = {
    int: (0, 1, -1),
    bool: (False, True),
    float: (0.0, 1.0, -0.0, math.nan),
    Decimal: (Decimal(1), Decimal("1.0"), Decimal(0)),
    tuple[float, int]: ((math.nan, 1), (1.0, 0), (0.0, 1)),
    Shift: (Shift(0, "x"), Shift(0, "y"), Shift(1, "x")),
}
ASKED = (True, 1, 1.0, float("nan"), (float("nan"), 1), (True, False), "1", None)
"""Namespaces of other types, which equal one of another type."""


class WrongTotalError(Exception):
    """The error of the users' functions."""


def total(a, b):
    """Return the sum; fail at 13 or more."""
    if a + b >= 13:
        raise WrongTotalError(a + b)
    return a + b


class Totals(mp.AggregateFunction):
    """Aggregate function that sums, and fails to return 7."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return total(accumulator, value)

    def get_result(self, accumulator):
        if accumulator == 7:
            raise WrongTotalError(7)
        return accumulator

    def merge(self, a, b):
        return total(a, b)


class Program:
    """One program on one backend, and its results.

    Attributes:
        seen: the result or error of each call, and the current key after it.
        held: the expected content of the state "sum", by key and encoded namespace.
    """

    def __init__(self, seed, backend):
        self.random, self.backend = random.Random(seed), backend
        self.seen, self.errors, self.held = [], [], {}
        self.kind = [*NAMESPACES][seed % len(NAMESPACES)]
        self.codec = key_codec_for(self.kind)
        self.ttl = self.random.choice([None, *mp.UpdateType])
        self.sum = self.declared(mp.ReducingStateDescriptor("sum", total, int))
        self.mean = self.declared(mp.AggregatingStateDescriptor("mean", Totals(), int))

    def declared(self, descriptor):
        if self.ttl is not None:
            descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(days=1), self.ttl))
        return descriptor

    def run(self):
        for _ in range(40):
            self.choose()
            call = self.random.choice(
                [self.add, self.add, self.add_many, self.get_many, self.visit]
            )
            self.tried(call)
            if self.random.random() < 0.1:
                self.listed()
        self.listed()
        return self.seen

    def choose(self):
        if self.random.random() < 0.2:
            self.backend.current.forget()
        else:
            self.backend.set_current_key(self.random.choice(KEYS))

    def tried(self, call):
        before, names = self.backend.current.key_or_none, call.__name__
        try:
            found = call()
        except WrongTotalError as error:
            self.errors.append(error)  # with the frames of its traceback
            found = repr(error)
        assert self.backend.current.key_or_none == before, names
        self.seen.append((names, found, before))

    def place(self, descriptor):
        """Return a state in a namespace, and the namespace."""
        namespace = self.random.choice(NAMESPACES[self.kind])
        state = self.backend.get_partitioned_state(descriptor, namespace, self.kind)
        return state, self.encoded(namespace)

    def encoded(self, namespace):
        return self.codec.encode(self.codec.check(namespace))

    def add(self):
        state, space = self.place(self.sum)
        key, number = self.backend.current.key_or_none, self.random.randrange(5)
        if key is not None:
            state.add(number)
            self.held[key, space] = number + self.held.get((key, space), 0)

    def add_many(self):
        state, space = self.place(self.sum)
        keys = self.random.sample(KEYS, k=3)
        numbers = [self.random.randrange(8) for _ in keys]
        state.add_many(keys, numbers)
        for key, number in zip(keys, numbers, strict=True):
            self.held[key, space] = number + self.held.get((key, space), 0)

    def get_many(self):
        state, _ = self.place(self.mean)
        state.add_many(KEYS, [self.random.randrange(4) for _ in KEYS])
        return list(state.get_many(KEYS))

    def visit(self):
        """Visit the keys of a namespace, up to a sum of 7."""
        namespace = self.random.choice(NAMESPACES[self.kind])
        visited = []

        def look(key, state):
            if state.get() == 7:
                raise WrongTotalError(7)
            visited.append((key, state.get()))

        self.backend.apply_to_all_keys(self.sum, look, namespace)
        space = self.encoded(namespace)
        held = [(key, number) for (key, at), number in self.held.items() if at == space]
        assert sorted(visited) == sorted(held)
        return sorted(visited)

    def listed(self):
        """Return the keys of each namespace of the type, and of empty ones."""
        for namespace in NAMESPACES[self.kind]:
            space = self.encoded(namespace)
            held = [key for key, at in self.held if at == space]
            assert sorted(self.backend.keys("sum", namespace)) == sorted(held)
        asked = [(repr(each), sorted(self.backend.keys("sum", each))) for each in ASKED]
        self.seen.append(asked)


def observed(name, seed, folder):
    """Return the results of a program on a backend."""
    with mp.open_keyed_backend(
        name, key_type=str, directory=folder, clock=mp.ManualClock(0)
    ) as backend:
        return Program(seed, backend).run()


def compare(seeds, folder):
    """Run programs on each backend, and name the one that differs."""
    for seed in seeds:
        seen = {name: observed(name, seed, folder / f"{name}-{seed}") for name in BACKENDS}
        for name in BACKENDS[1:]:
            assert seen[name] == seen["heap"], (seed, name)


def test_keys_are_told_apart_alike(tmp_path):
    """Namespaces are distinguished as in the stores, and a failing call keeps the current key."""
    compare(range(8), tmp_path)


@pytest.mark.soak
def test_many_keys_are_told_apart_alike(tmp_path):
    """Two hundred generated programs give the same results on every backend and in plain Python."""
    compare(range(1_000, 1_200), tmp_path)
