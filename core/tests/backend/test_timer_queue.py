"""Timers fire once and in order, and see the changes that callbacks make."""

import random
import tracemalloc

import millpond as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond.backend.timer_queue import MemoryTimerRows
from millpond.spi.keys import KeyLayout
from millpond.spi.tables import timestamp_bytes, timestamp_from

from core.tests.memory_store import open_memory

INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = [-(2**63), -1, 0, 1, 255, 256, 2**63 - 1]


@given(INT64, INT64)
def test_timestamps_sort_as_bytes(one, two):
    """Encoded timestamps sort like the numbers, negative ones too, and can be decoded."""
    assert (timestamp_bytes(one) < timestamp_bytes(two)) == (one < two)
    assert timestamp_from(timestamp_bytes(one)) == one


@pytest.fixture
def timers(tmp_path):
    """A queue and its backend with current key k; namespaces are strings."""
    with open_memory(tmp_path) as backend:
        backend.set_current_key("k")
        yield backend.timer_queue("event-time", str), backend


def times(found):
    """Return the timestamps in firing order."""
    return [timer.timestamp for timer in found]


@pytest.mark.parametrize("flushed", [False, True])
def test_they_fire_in_order_up_to_a_time(timers, flushed):
    """Timers of all key groups fire up to the given time, each once."""
    queue, backend = timers
    wanted = [*EDGES, *EDGES[::-1]]
    random.Random(1).shuffle(wanted)
    for number, timestamp in enumerate(wanted):
        backend.set_current_key(f"key {number % 5}")
        queue.register(timestamp, "")
    if flushed:
        backend.flush()
    distinct = sorted({(stamp, n % 5) for n, stamp in enumerate(wanted)})
    assert queue.earliest() == EDGES[0]
    assert times(queue.due(0)) == [stamp for stamp, _ in distinct if stamp <= 0]
    assert times(queue.due(0)) == []
    assert queue.earliest() == 1
    assert times(queue.due(2**63 - 1)) == [stamp for stamp, _ in distinct if stamp > 0]
    assert queue.earliest() is None


@pytest.mark.parametrize("flushed", [False, True])
def test_a_deleted_timer_does_not_fire(timers, flushed):
    """A timer that is deleted before, or by an earlier callback, does not fire; deleting a missing one does nothing."""
    queue, backend = timers
    for timestamp in (1, 2, 3, 4):
        queue.register(timestamp, "")
    queue.register(3, "other")
    if flushed:
        backend.flush()
    queue.delete(1, "")
    queue.delete(99, "")
    seen = []
    for timer in queue.due(10):
        seen.append((timer.timestamp, timer.namespace))
        if timer.timestamp == 2:
            queue.delete(3, "")
    assert seen == [(2, ""), (3, "other"), (4, "")]


def test_a_timer_set_while_others_fire_takes_part(timers):
    """A due timer that a callback sets fires in its place; one that is set, deleted and set again fires once."""
    queue, _ = timers
    queue.register(1, "")
    queue.register(5, "")
    seen = []
    for timer in queue.due(10):
        seen.append(timer.timestamp)
        if timer.timestamp == 1:
            for timestamp in (3, 3, 11, 5):
                queue.register(timestamp, "")
            queue.delete(5, "")
            queue.register(5, "")
    assert seen == [1, 3, 5]
    assert times(queue.due(20)) == [11]


def test_a_timer_that_has_fired_can_be_set_again(timers):
    """A callback may set its own timer again for the same time; it fires once more."""
    queue, _ = timers
    queue.register(1, "")
    seen = []
    for timer in queue.due(10):
        seen.append(timer.timestamp)
        if len(seen) < 3:
            queue.register(1, "")
    assert seen == [1, 1, 1]
    assert queue.earliest() is None


def test_take_all_leaves_those_that_are_set_meanwhile(timers):
    """At a key's end the existing timers fire once, whatever their callbacks set."""
    queue, _ = timers
    queue.register(2, "")
    queue.register(1, "")
    queue.register(3, "")
    seen = []
    for timer in queue.take_all():
        seen.append(timer.timestamp)
        queue.register(timer.timestamp + 100, "")
        if timer.timestamp == 1:
            queue.delete(3, "")
    assert seen == [1, 2]
    assert times(queue.due(1000)) == [101, 102]


def test_timers_of_key_and_namespace_are_several(timers):
    """Time, key and namespace together identify a timer, which knows its key group."""
    queue, backend = timers
    for key in ("k", "l"):
        backend.set_current_key(key)
        for namespace in ("", "n"):
            queue.register(7, namespace)
    found = {(timer.key, timer.namespace, timer.key_group) for timer in queue.due(7)}
    groups = {key: mp.assign_to_key_group(key, 128) for key in ("k", "l")}
    assert found == {(key, space, groups[key]) for key in ("k", "l") for space in ("", "n")}


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3))))
def test_rows_in_memory_are_a_set(steps):
    """After any additions and removals, the earliest and due timers are those of a set."""
    rows = MemoryTimerRows(KeyLayout(128), [], track_changes=True)
    model = set()
    for add, timestamp in steps:
        row = b"\x07" + timestamp_bytes(timestamp) + b"k"
        (rows.add if add else rows.discard)(row)
        (model.add if add else model.discard)(timestamp)
        assert rows.earliest() == min(model, default=None)
        until = rows.until(0)
        assert sorted(timestamp_from(row[1:9]) for row in until) == sorted(
            t for t in model if t <= 0
        )
    present = {timestamp_from(row[1:9]) for row, value in rows.changes() if value is not None}
    assert present == model


def test_a_timer_that_is_moved_leaves_nothing_behind():
    """After thousands of removals, few removed rows are kept, and the order is correct."""
    rows = MemoryTimerRows(KeyLayout(128), [], track_changes=False)
    standing = [b"\0" + timestamp_bytes(time) + b"k" for time in range(40)]
    for row in standing:
        rows.add(row)
    tracemalloc.start()
    try:
        for time in range(10_000):
            moved = b"\0" + timestamp_bytes(1000 + time) + b"moved"
            rows.add(moved)
            rows.discard(moved)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 100_000
    assert rows.earliest() == 0
    assert sorted(rows.until(2**62)) == standing
