"""Clauses: merging namespaces, with functions that modify their arguments or fail, and with TTL."""

from datetime import timedelta

import millpond as mp
import pytest
from typing_extensions import override

from millpond_conformance.clauses.test_async_snapshots import (
    FULL,
    SlowStorage,
    begins_early,
    runs_alone,
)
from millpond_conformance.fixtures import BackendOpener

SPACES = ("target", "one", "two")


class Gather(mp.AggregateFunction[str, list[str], list[str]]):
    """An aggregate function that gathers values in a list, and modifies every list that it gets."""

    @override
    def create_accumulator(self):
        return []

    @override
    def add(self, value, accumulator):
        accumulator.append(value)
        return accumulator

    @override
    def get_result(self, accumulator):
        accumulator.append("seen")
        return accumulator[:-1]

    @override
    def merge(self, a, b):
        a.extend(b)
        b.clear()
        return a


def swallow(a, b):
    """Return `a` with the elements of `b`, which becomes empty."""
    a.extend(b)
    b.clear()
    return a


GATHERED = mp.AggregatingStateDescriptor("gathered", Gather(), list[str])
REDUCED = mp.ReducingStateDescriptor("reduced", swallow, list[str])
LISTED = mp.ListStateDescriptor("listed", str)


def states(backend):
    """Return the three mergeable states, each with a function from a string to an element."""
    backend.set_current_key("k")
    found = [backend.get_partitioned_state(each, "one") for each in (GATHERED, REDUCED, LISTED)]
    return list(zip(found, (lambda v: v, lambda v: [v], lambda v: v), strict=True))


def shown(backend):
    """Return the contents of the states in each namespace."""
    seen = []
    for state, _ in states(backend):
        for space in SPACES:
            state.set_current_namespace(space)
            seen.append(state.get() or None)
    return seen


@pytest.mark.clause("K16")
def test_functions_may_change_their_arguments(open_backend: BackendOpener):
    """If a user's function modifies its arguments, no result changes, with or without a flush."""
    for flushed in (False, True):
        backend = open_backend()
        for state, form in states(backend):
            for space in SPACES:
                state.set_current_namespace(space)
                for value in (space, space.upper()):
                    state.add(form(value))
        if flushed:
            backend.flush()
        before = shown(backend)
        assert (
            shown(backend) == before == [["target", "TARGET"], ["one", "ONE"], ["two", "TWO"]] * 3
        )
        for state, _ in states(backend):
            state.merge_namespaces("target", ["two", "one", "two"])
        merged = ["target", "TARGET", "two", "TWO", "one", "ONE"]
        assert shown(backend) == [merged, None, None] * 3


@pytest.mark.clause("K17")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_failing_merge_changes_nothing(open_backend: BackendOpener, flushed):
    """If a user's function raises an error in a merge, no namespace changes."""

    def refuse(a, b):
        a.clear()
        b.clear()
        if len(calls) == 1:
            raise ZeroDivisionError
        calls.append(1)
        return [9]

    backend = open_backend()
    backend.set_current_key("k")
    descriptor = mp.ReducingStateDescriptor("r", refuse, list[int])
    state = backend.get_partitioned_state(descriptor, "one")
    for number, space in enumerate(SPACES):
        state.set_current_namespace(space)
        state.add([number])
    if flushed:
        backend.flush()
    calls: list[int] = []
    with pytest.raises(ZeroDivisionError):
        state.merge_namespaces("target", ["one", "two"])
    for number, space in enumerate(SPACES):
        state.set_current_namespace(space)
        assert state.get() == [number]


@pytest.mark.clause("A10")
@pytest.mark.parametrize("target", ["kept", "emptied", "absent"])
def test_merges_change_no_running_snapshot(open_backend: BackendOpener, target):
    """A snapshot holds the state at its start; merges that run later do not change it."""
    storage = SlowStorage()
    backend = open_backend(config=FULL)
    begins_early(backend)
    if not runs_alone(backend):
        storage.gate.set()
    for state, form in states(backend):
        for space in SPACES[target == "absent" :]:
            state.set_current_namespace(space)
            state.add(form(space))
    expected = shown(backend)
    future = backend.snapshot(1, storage)
    for state, form in states(backend):
        state.set_current_namespace("target")
        if target == "emptied":
            state.add(form("later"))
            state.clear()
        sources = ["one", "two"] if target == "kept" else ["two"]
        state.merge_namespaces("target", sources)
        state.add(form("even later"))
        state.add(form("last"))
    storage.gate.set()
    restored = open_backend(restore=[future.result().handle])
    assert shown(restored) == expected


TTL = timedelta(milliseconds=10)


class Total(mp.AggregateFunction[int, int, int]):
    """An aggregate function that computes the sum."""

    @override
    def create_accumulator(self):
        return 0

    @override
    def add(self, value, accumulator):
        return accumulator + value

    @override
    def get_result(self, accumulator):
        return accumulator

    @override
    def merge(self, a, b):
        return a + b


@pytest.mark.clause("T13")
@pytest.mark.parametrize("kind", ["reducing", "aggregating"])
@pytest.mark.parametrize("visibility", mp.StateVisibility)
def test_a_merge_of_several_stamps_now(open_backend: BackendOpener, clock, kind, visibility):
    """With TTL, the result of merging several accumulators has the time of the merge.

    Expired accumulators that reads do not show are not merged.
    """
    shows = visibility is mp.StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
    ttl = mp.StateTtlConfig(TTL, visibility=visibility)
    backend = open_backend()
    descriptor = {
        "reducing": mp.ReducingStateDescriptor("s", int.__add__, int),
        "aggregating": mp.AggregatingStateDescriptor("s", Total(), int),
    }[kind].enable_time_to_live(ttl)
    state = backend.get_partitioned_state(descriptor, "target")
    # At the merge at time 12, the value added at 0 has expired, but not the one added at 5.
    for key, times, merged in (
        ("first", (0, 5, 5), 110 + shows),
        ("middle", (5, 0, 5), 101 + 10 * shows),
        ("last", (5, 5, 0), 11 + 100 * shows),
        ("none", (0, 0, 0), 111 if shows else None),
        ("alone", (None, 5, 0), 10 + 100 * shows),
        ("all", (5, 5, 5), 111),
    ):
        backend.set_current_key(key)
        for space, number, moment in zip(SPACES, (1, 10, 100), times, strict=True):
            if moment is not None:
                clock.set(moment)
                state.set_current_namespace(space)
                state.add(number)
        clock.set(12)
        state.merge_namespaces("target", ["one", "two"])
        state.set_current_namespace("target")
        clock.set(21)
        assert state.get() == merged, key
        assert sum(found[0] == key for found in backend.keys_and_namespaces("s")) == (
            merged is not None
        )
