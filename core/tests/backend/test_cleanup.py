"""Time stamps of TTL: their place, their expiry, and the clean-up."""

import struct
from datetime import timedelta

import millpond as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond.spi.portable_rows import join_cells, split_cells

from core.tests.memory_store import STORES, open_memory

SECOND = 1000


def with_ttl(descriptor):
    """Return a descriptor with a TTL of a second."""
    descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(seconds=1)))
    return descriptor


@pytest.fixture
def opened(tmp_path):
    """Return a backend and its clock."""
    clock = mp.ManualClock(-5 * SECOND)
    with open_memory(tmp_path, clock) as backend:
        backend.set_current_key("k")
        yield backend, clock


@pytest.mark.parametrize("now", [-(2**40), -1, 0, 1, 2**40])
def test_a_stamp_stands_before_the_value(opened, now):
    """The stamp is 8 bytes, big-endian and signed, before the value's own bytes."""
    backend, clock = opened
    clock.now_ms = now
    with_stamp = backend.get_partitioned_state(with_ttl(mp.ValueStateDescriptor("stamped", str)))
    without = backend.get_partitioned_state(mp.ValueStateDescriptor("plain", str))
    with_stamp.update("what")
    without.update("what")
    backend.flush()
    ((_, stamped),) = STORES[-1].rows["stamped"].items()
    ((_, plain),) = STORES[-1].rows["plain"].items()
    assert stamped == struct.pack(">q", now) + plain
    assert with_stamp.value() == "what"


def test_a_value_lives_to_its_last_millisecond(opened):
    """A value is readable 999 ms after it was written, and gone after 1,000 ms, read or cleaned up."""
    backend, clock = opened
    state = backend.get_partitioned_state(with_ttl(mp.ValueStateDescriptor("v", int)))
    state.update(1)
    backend.flush()
    clock.now_ms += SECOND - 1
    backend.flush()
    backend.set_current_key("k")
    assert state.value() == 1
    assert len(STORES[-1].rows["v"]) == 1
    clock.now_ms += 1
    assert state.value() is None
    backend.flush()
    assert STORES[-1].rows["v"] == {}


def test_a_clean_up_leaves_what_was_renewed_in_the_buffer(opened):
    """If a stored value has expired and a newer one is buffered, the newer one is flushed."""
    backend, clock = opened
    state = backend.get_partitioned_state(with_ttl(mp.ValueStateDescriptor("v", int)))
    entries = backend.get_partitioned_state(with_ttl(mp.MapStateDescriptor("m", str, int)))
    state.update(1)
    entries.put("a", 1)
    entries.put("b", 1)
    backend.flush()
    clock.now_ms += 2 * SECOND
    backend.set_current_key("k")
    state.update(2)
    entries.put("a", 2)
    backend.flush()
    backend.set_current_key("k")
    assert state.value() == 2
    assert dict(entries.items()) == {"a": 2}
    assert len(STORES[-1].rows["m"]) == 1
    assert backend.counters()["expired_removed"] == 1


def test_of_a_list_only_what_has_expired_goes(opened):
    """Elements have their own stamps, in stored lists too."""
    backend, clock = opened
    state = backend.get_partitioned_state(with_ttl(mp.ListStateDescriptor("l", int)))
    state.add(1)
    clock.now_ms += SECOND // 2
    state.add(2)
    backend.flush()
    clock.now_ms += SECOND // 2
    backend.flush()
    ((_, stored),) = STORES[-1].rows["l"].items()
    assert len(list(split_cells(stored))) == 1
    backend.set_current_key("k")
    assert list(state.get()) == [2]


def test_a_pass_goes_through_all_rows_in_steps(opened):
    """The clean-up removes all expired rows, however few rows a flush examines."""
    backend, clock = opened
    state = backend.get_partitioned_state(with_ttl(mp.ValueStateDescriptor("v", int)))

    def write(numbers):
        for number in numbers:
            backend.set_current_key(f"key {number}")
            state.update(number)
        backend.flush()

    write(range(3000))
    clock.now_ms += SECOND // 2
    write(range(0, 3000, 2))
    clock.now_ms += SECOND // 2
    left = []
    for _ in range(5):
        backend.flush()
        left.append(len(STORES[-1].rows["v"]))
    assert 2000 < left[0] < 3000
    assert left[-1] == 1500


@given(st.lists(st.binary(max_size=300)))
def test_lists_of_cells_come_back(cells):
    """A stored list is split into its elements."""
    assert list(split_cells(join_cells(cells))) == cells
