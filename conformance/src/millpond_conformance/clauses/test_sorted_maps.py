"""Clauses: sorted maps, their ranges, and the cost of a range."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import millpond as mp
import pytest

from millpond_conformance.call_counts import count_calls
from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.sorted_programs import SortedProgram

TIMES = [datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1969, 1970, 2026, 9999)]
ORDERED: dict[Any, list[Any]] = {
    int: [-(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1],
    float: [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 1.0, 1e308, math.inf],
    str: ["", "\0", "\0a", "a", "a\0", "a\0b", "aa", "b", "é", "\uffff", "😀"],
    bytes: [b"", b"\0", b"\0\xff", b"a", b"a\0", b"a\xff", b"b", b"\xff", b"\xff\xff"],
    date: [date.min, date(1969, 12, 31), date(1970, 1, 1), date.max],
    datetime: TIMES,
    Decimal: [Decimal(text) for text in ("-1E3", "-999.5", "-1", "0", "1E-9", "2", "10", "1E3")],
    tuple[str, int]: [("", 5), ("a", -1), ("a", 0), ("a\0", -9), ("aa", 0), ("b", -3)],
    tuple[int | None, str]: [(None, "b"), (-1, "z"), (0, "a"), (7, "")],
}


@pytest.mark.clause("K25")
@pytest.mark.parametrize("key_type", ORDERED, ids=str)
@pytest.mark.parametrize("stored", ["nothing", "half", "all"])
def test_sorted_maps_are_in_the_order_of_their_keys(open_backend: BackendOpener, key_type, stored):
    """A sorted map iterates in the order of its keys, forwards and backwards, flushed or not."""
    keys, backend = ORDERED[key_type], open_backend()
    state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", key_type, int))
    backend.set_current_key("k")
    for number, key in enumerate(sorted(keys, key=repr)):
        state.put(key, keys.index(key))
        if stored == "all" or (stored == "half" and number % 2):
            backend.flush()
            backend.set_current_key("k")
    expected = [(key, place) for place, key in enumerate(keys)]
    assert list(state.items()) == expected
    assert list(state.range(reverse=True)) == expected[::-1]
    for place, key in enumerate(keys):
        assert list(state.range(key)) == expected[place:]
        assert list(state.range(None, key)) == expected[:place]


@pytest.mark.clause("K26")
def test_sorted_maps_equal_sorted_dictionaries(open_backend: BackendOpener):
    """Ranges, first and last entries, and removals of ranges equal those of a sorted dictionary.

    If a map changes during an iteration, each step returns the next entry of the changed map.
    """
    for seed in range(30):
        program = SortedProgram(open_backend(), seed)
        program.run(150)
        program.check()


@pytest.mark.clause("K27")
@pytest.mark.parametrize("way", ["changelog", "full", "savepoint"])
def test_sorted_maps_are_restored(open_backend: BackendOpener, storage, way):
    """A restored sorted map has its entries in order, and can be changed.

    A plain map can be restored as a sorted map.
    """
    config = mp.Config({"state.snapshot.strategy": "full" if way == "full" else "changelog"})

    def saved(backend, number):
        if way == "savepoint":
            return backend.savepoint(number, storage).result().handle
        return backend.snapshot(number, storage).result().handle

    backend = open_backend(config=config)
    program = SortedProgram(backend, 0)
    for number in range(1, 5):
        program.run(60)
        backend = open_backend(config=config, restore=[saved(backend, number)])
        program.adopt(backend)
        program.check()
    backend = open_backend(config=config)
    backend.set_current_key("k")
    plain = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, str))
    plain.put_all(dict.fromkeys((300, -1, 5, 2), ""))
    backend = open_backend(config=config, restore=[saved(backend, 9)])
    backend.set_current_key("k")
    state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("m", int, str))
    assert list(state) == [-1, 2, 5, 300]


@pytest.mark.clause("K28")
@pytest.mark.parametrize("size", [400, 489, 495, 511, 1100])
def test_long_keys_of_sorted_maps(open_backend: BackendOpener, size):
    """Map keys of any length are in order, even if they differ only after hundreds of bytes."""
    keys = [b"", b"\0", b"\0\0", b"a", b"aa", *(b"b" + bytes([n]) * 9 for n in range(0, 256, 5))]
    for key in ("short", "k" * 500):
        backend = open_backend()
        backend.set_current_key(key)
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", bytes, int))
        long = [b"p" * size + each for each in keys]
        state.put_all({each: number for number, each in reversed(list(enumerate(long)))})
        for _ in range(2):
            assert list(state) == long
            assert [each for each, _ in state.range(long[7], long[50], reverse=True)] == long[
                49:6:-1
            ]
            assert state.last() == (long[-1], len(long) - 1)
            backend.flush()
            backend.set_current_key(key)
        state.remove_range(long[2], long[-2])
        assert list(state) == [*long[:2], *long[-2:]]


@pytest.mark.clause("K29")
@pytest.mark.parametrize("stored", ["nothing", "half", "all"])
def test_a_range_costs_the_same_in_a_larger_map(open_backend: BackendOpener, stored):
    """Reading ten of 8,000 map entries takes less than twice the calls of reading ten of 500.

    Calls are those of Python and C functions. Each removal of the first entry takes a constant
    number of calls.
    """

    def filled(size):
        backend = open_backend()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", int, int))
        state.put_all(dict.fromkeys(range(0, size, 2), 0))
        if stored == "half":
            backend.flush()
            backend.set_current_key("k")
        state.put_all(dict.fromkeys(range(1, size, 2), 0))
        if stored == "all":
            backend.flush()
            backend.set_current_key("k")
        state.first()  # sorts the buffered keys
        return state

    def read(state, middle):
        assert [key for key, _ in state.range(middle, middle + 10)] == [*range(middle, middle + 10)]

    def drain(state, start, stop):
        for number in range(start, stop):
            assert state.pop_first() == (number, 0)

    small, large = filled(500), filled(8000)
    assert count_calls(lambda: read(large, 4000)) < 2 * count_calls(lambda: read(small, 250)) + 25
    few = count_calls(lambda: drain(large, 0, 200))
    assert count_calls(lambda: drain(large, 200, 800)) < 6 * few


@pytest.mark.clause("T15")
@pytest.mark.switches_ttl
def test_expired_entries_are_in_no_range(open_backend: BackendOpener, clock):
    """Ranges, `first` and `last` return no expired entries, and a limit does not count them."""
    for seed in range(30):
        clock.set(1000 * seed)
        program = SortedProgram(open_backend(), seed, clock, ttl_ms=60)
        program.run(150)
        program.check()
