"""Walks over maps whose entries change meanwhile, as generated programs beside a dictionary."""

import sys

import millpond as mp
import pytest
from millpond_conformance.map_walks import WalkedMap


def walks(backend, tmp_path, seeds, *, stored):
    """Many walks over maps that change before and meanwhile."""
    with mp.open_keyed_backend(backend, key_type=int, directory=tmp_path) as opened:
        state = opened.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        for seed in range(seeds):
            opened.set_current_key(seed)
            program = WalkedMap(state, seed)
            for _ in range(program.rng.randrange(10)):
                program.change()
            if stored:
                opened.flush()
                opened.set_current_key(seed)
                for _ in range(4):
                    program.change()
            for _ in range(4):
                yield program.walk()
            assert dict(state.items()) == program.model


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_a_walk_gives_what_was_there_once_and_as_it_is(backend, tmp_path):
    """In a map that no flush has stored, entries put during a walk are not part of it."""
    for before, seen, *_ in walks(backend, tmp_path, 300, stored=False):
        assert len(seen) == len(set(seen))
        assert set(seen) <= before


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_a_walk_over_stored_entries_gives_none_twice_and_none_that_is_gone(backend, tmp_path):
    """So it is with entries that are stored; what is put meanwhile may come, as it is then."""
    for _, seen, *_ in walks(backend, tmp_path, 100, stored=True):
        assert len(seen) == len(set(seen))


def calls(action):
    """How many calls of Python and C functions an action makes."""
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_a_map_that_was_cleared_is_not_walked_again(backend, tmp_path):
    """To rebuild a small map of a large stored one again and again costs as much for each time."""

    def rebuilt(count):
        opened.set_current_key(count)
        state.put_all(dict.fromkeys(range(count), 0))
        opened.flush()
        opened.set_current_key(count)

        def rebuild():
            for number in range(count):
                state.clear()
                state.put(number, 1)
                assert list(state.keys()) == [number]

        return calls(rebuild)

    with mp.open_keyed_backend(backend, key_type=int, directory=tmp_path) as opened:
        state = opened.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        assert rebuilt(400) < 3 * rebuilt(200)
