"""Clauses: TTL for every kind of state; the tests set the clock."""

import copy
from datetime import timedelta

import attrs
import millpond as mp
import pytest

from millpond_conformance.clauses.test_kinds import Average
from millpond_conformance.fixtures import BackendOpener

TTL = mp.StateTtlConfig(timedelta(milliseconds=10))
ON_READ = mp.StateTtlConfig(timedelta(milliseconds=10), mp.UpdateType.ON_READ_AND_WRITE)
ONCE = mp.StateTtlConfig(
    timedelta(milliseconds=10), visibility=mp.StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
)


def opened(open_backend, descriptor, ttl=TTL):
    """Return a backend with a current key, and the state of `descriptor` with the TTL `ttl`."""
    backend = open_backend()
    backend.set_current_key("k")
    return backend, backend.get_partitioned_state(descriptor.enable_time_to_live(ttl))


@pytest.mark.clause("T1")
def test_value_expires_exactly(open_backend: BackendOpener, clock):
    """A value is readable until timestamp + ttl; at that time the value and its entry are gone."""
    backend, state = opened(open_backend, mp.ValueStateDescriptor("v", int))
    state.update(1)
    clock.set(9)
    assert state.value() == 1
    clock.set(10)
    assert state.value() is None
    assert backend.num_state_entries() == 0


@pytest.mark.clause("T2")
def test_reads_renew_only_where_asked(open_backend: BackendOpener, clock):
    """A read renews the timestamp only with ON_READ_AND_WRITE."""
    for ttl, expected in ((TTL, None), (ON_READ, 1)):
        _, state = opened(open_backend, mp.ValueStateDescriptor("v", int), ttl)
        clock.set(0)
        state.update(1)
        clock.set(8)
        state.value()
        clock.set(12)
        assert state.value() == expected


@pytest.mark.clause("T3")
def test_expired_values_may_be_returned_once(open_backend: BackendOpener, clock):
    """With RETURN_EXPIRED_IF_NOT_CLEANED_UP only the first read returns an expired value."""
    _, state = opened(open_backend, mp.ValueStateDescriptor("v", int), ONCE)
    state.update(1)
    clock.set(20)
    assert state.value() == 1
    assert state.value() is None


@pytest.mark.clause("T4")
def test_list_elements_expire_one_by_one(open_backend: BackendOpener, clock):
    """Each list element has its own timestamp."""
    _, state = opened(open_backend, mp.ListStateDescriptor("l", str))
    state.add("old")
    clock.set(5)
    state.add_all(["new", "newer"])
    clock.set(12)
    assert state.get() == ["new", "newer"]


@pytest.mark.clause("T5")
def test_map_entries_expire_one_by_one(open_backend: BackendOpener, clock):
    """Each map entry has its own timestamp; a map whose entries have all expired is empty."""
    backend, state = opened(open_backend, mp.MapStateDescriptor("m", str, int))
    state.put("old", 1)
    clock.set(5)
    state.put("new", 2)
    clock.set(12)
    assert dict(state.items()) == {"new": 2}
    assert "old" not in state
    assert backend.num_state_entries() == 1
    clock.set(20)
    assert state.is_empty()


@pytest.mark.clause("T6")
@pytest.mark.parametrize(
    ("descriptor", "results"),
    [
        (mp.ReducingStateDescriptor("r", max, int), (9, 4)),
        (mp.AggregatingStateDescriptor("a", Average, tuple[float, int]), (5.0, 4.0)),
        (mp.FoldingStateDescriptor("f", 0, lambda total, value: total + value, int), (10, 4)),
    ],
)
def test_accumulators_expire_as_a_whole(open_backend: BackendOpener, clock, descriptor, results):
    """An add renews the whole accumulator; after expiry an add starts a new one."""
    clock.set(0)
    _, state = opened(open_backend, descriptor)
    state.add(9)
    clock.set(9)
    state.add(1)
    clock.set(18)
    assert state.get() == results[0]
    clock.set(19)
    assert state.get() is None
    state.add(4)
    assert state.get() == results[1]


@pytest.mark.clause("T7")
def test_merging_leaves_out_what_has_expired(open_backend: BackendOpener, clock):
    """A merge ignores expired accumulators; list elements that it moves keep their timestamps."""
    backend = open_backend()
    backend.set_current_key("k")
    descriptor = mp.ReducingStateDescriptor("r", max, int).enable_time_to_live(TTL)
    state = backend.get_partitioned_state(descriptor, namespace="old")
    state.add(9)
    clock.set(8)
    state.set_current_namespace("target")
    state.add(2)
    clock.set(12)
    state.merge_namespaces("target", ["old"])
    state.set_current_namespace("target")
    assert state.get() == 2
    listed = mp.ListStateDescriptor("l", str).enable_time_to_live(TTL)
    items = backend.get_partitioned_state(listed, namespace="old")
    items.add("first")
    clock.set(15)
    items.add("second")
    items.merge_namespaces("target", ["old"])
    items.set_current_namespace("target")
    assert items.get() == ["first", "second"]
    clock.set(22)
    assert items.get() == ["second"]


@pytest.mark.clause("T8")
def test_timestamps_survive_snapshots(open_backend: BackendOpener, clock):
    """A restored value expires at the time at which the original would have expired."""
    backend, state = opened(open_backend, mp.ValueStateDescriptor("v", int))
    state.update(1)
    handle = backend.snapshot(1, mp.checkpoint_storage("memory:ttl")).result().handle
    restored = open_backend(restore=[handle])
    restored.set_current_key("k")
    again = restored.get_partitioned_state(
        mp.ValueStateDescriptor("v", int).enable_time_to_live(TTL)
    )
    clock.set(9)
    assert again.value() == 1
    clock.set(10)
    assert again.value() is None


LONG_MAX = (1 << 63) - 1


@pytest.mark.clause("T9")
def test_an_overflowing_ttl_never_expires(open_backend: BackendOpener, clock):
    """If timestamp + ttl exceeds 64 bits, the value remains, with and without a flush."""
    endless = mp.StateTtlConfig(timedelta.max)
    backend, state = opened(open_backend, mp.ValueStateDescriptor("v", int), endless)
    clock.set(LONG_MAX - 1000)
    state.update(1)
    clock.set(LONG_MAX - 1)
    assert state.value() == 1
    backend.flush()
    backend.flush()
    assert state.value() == 1


@pytest.mark.clause("T10")
def test_a_clock_that_jumps_back(open_backend: BackendOpener, clock):
    """If the clock goes back, a value lives until its timestamp + ttl.

    Entries that have expired do not come back.
    """
    backend, state = opened(open_backend, mp.ValueStateDescriptor("v", int))
    clock.set(100)
    state.update(1)
    clock.set(50)
    backend.flush()
    assert state.value() == 1
    clock.set(109)
    assert state.value() == 1
    clock.set(110)
    assert state.value() is None
    clock.set(100)
    backend.flush()
    assert state.value() is None


@pytest.mark.clause("T11")
@pytest.mark.parametrize("ttl", [TTL, ONCE], ids=["hidden", "visible"])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(
    "descriptor",
    [
        mp.ReducingStateDescriptor("r", int.__add__, int),
        mp.AggregatingStateDescriptor("a", Average, tuple[float, int]),
        mp.FoldingStateDescriptor("f", 0, int.__add__, int),
    ],
    ids=["reducing", "aggregating", "folding"],
)
def test_add_goes_on_from_what_a_read_would_give(
    open_backend: BackendOpener, clock, descriptor, ttl, flushed
):
    """An add continues an expired accumulator if reads return it; otherwise it starts a new one."""
    off = attrs.evolve(ttl, cleanup=mp.CleanupStrategies(in_background=False))
    clock.set(0)
    backend, state = opened(open_backend, copy.copy(descriptor), off)
    state.add(5)
    if flushed:
        backend.flush()
    clock.set(10)
    state.add(7)
    assert state.get() == ({"a": 6}.get(descriptor.name, 12) if ttl is ONCE else 7)
    clock.set(19)
    assert state.get() is not None


@pytest.mark.clause("T12")
def test_is_empty_says_what_an_iteration_shows(open_backend: BackendOpener, clock):
    """`is_empty` returns true if and only if an iteration over the map returns nothing."""
    for ttl, visible in ((TTL, False), (ONCE, True)):
        clock.set(0)
        _, state = opened(open_backend, mp.MapStateDescriptor("m", str, int), ttl)
        assert state.is_empty()
        state.put("a", 1)
        clock.set(10)
        assert state.is_empty() is not visible
        assert bool(state) is visible
        assert list(state.items()) == ([("a", 1)] if visible else [])
        assert state.is_empty()


EVENT = mp.StateTtlConfig(timedelta(milliseconds=10), time=mp.TtlTime.EVENT_TIME)


@pytest.mark.clause("T16")
def test_entries_expire_by_the_watermark(open_backend: BackendOpener, clock):
    """With TTL by event time, entries expire by the watermark, and not by the clock.

    Before the first watermark, nothing expires. A lower watermark is ignored.
    """
    backend, state = opened(open_backend, mp.ValueStateDescriptor("v", int), EVENT)
    items = backend.get_partitioned_state(
        mp.ListStateDescriptor("l", str).enable_time_to_live(EVENT)
    )
    total = backend.get_partitioned_state(
        mp.ReducingStateDescriptor("r", int.__add__, int).enable_time_to_live(EVENT)
    )
    clock.set(5)
    state.update(1)
    clock.set(1000)
    backend.flush()
    assert state.value() == 1
    backend.advance_watermark(14)
    assert state.value() == 1
    items.add("first")
    total.add(1)
    backend.advance_watermark(15)
    assert state.value() is None
    items.add("second")
    backend.advance_watermark(3)
    assert items.get() == ["first", "second"]
    backend.advance_watermark(24)
    assert items.get() == ["second"]
    assert total.get() is None


@pytest.mark.clause("T17")
def test_a_write_may_have_its_own_ttl(open_backend: BackendOpener, clock):
    """A value, list element or map entry with its own TTL expires by it, before or after others.

    Reads do not renew it. The next write has the TTL of the state again.
    """
    long, short = timedelta(milliseconds=30), timedelta(milliseconds=3)
    backend, state = opened(open_backend, mp.ValueStateDescriptor("v", int), ON_READ)
    items = backend.get_partitioned_state(mp.ListStateDescriptor("l", str).enable_time_to_live(TTL))
    entries = backend.get_partitioned_state(
        mp.MapStateDescriptor("m", str, int).enable_time_to_live(ON_READ)
    )
    state.update(1, ttl=short)
    items.add("a", ttl=long)
    items.add("b")
    items.add_all(["c", "d"], ttl=short)
    entries.put("x", 1, ttl=short)
    entries.put_all({"y": 2}, ttl=long)
    entries["z"] = 3
    clock.set(2)
    assert state.value() == 1
    assert dict(entries) == {"x": 1, "y": 2, "z": 3}
    clock.set(3)
    backend.flush()
    assert state.value() is None
    assert items.get() == ["a", "b"]
    assert dict(entries) == {"y": 2, "z": 3}
    state.update(4)
    clock.set(12)
    assert state.value() == 4
    assert items.get() == ["a"]
    clock.set(25)
    assert dict(entries) == {"y": 2}
    clock.set(29)
    assert items.get() == ["a"]
    clock.set(30)
    backend.flush()
    assert items.get() == []
    assert entries.is_empty()


@pytest.mark.clause("T18")
@pytest.mark.parametrize("form", ["snapshot", "savepoint"])
@pytest.mark.parametrize("ttl_ms", [1, 10, 1000])
def test_own_ttls_survive_snapshots(open_backend: BackendOpener, clock, storage, form, ttl_ms):
    """If a restore changes the TTL of a state, entries with their own TTL expire as before.

    Other entries expire by the new TTL.
    """
    backend, state = opened(open_backend, mp.MapStateDescriptor("m", str, int), EVENT)
    backend.advance_watermark(100)
    state.put("short", 1, ttl=timedelta(milliseconds=5))
    state.put("long", 2, ttl=timedelta(milliseconds=50))
    state.put("plain", 3)
    take = backend.snapshot if form == "snapshot" else backend.savepoint
    restored = open_backend(restore=[take(1, storage).result().handle])
    restored.set_current_key("k")
    other = attrs.evolve(EVENT, ttl=timedelta(milliseconds=ttl_ms))
    again = restored.get_partitioned_state(
        mp.MapStateDescriptor("m", str, int).enable_time_to_live(other)
    )
    assert dict(again) == {"short": 1, "long": 2, "plain": 3}
    ends = {"short": 105, "long": 150, "plain": 100 + ttl_ms}
    for watermark in (101, 104, 105, 109, 110, 149, 150, 1099, 1100):
        restored.advance_watermark(watermark)
        restored.flush()
        assert set(again) == {key for key, end in ends.items() if end > watermark}
    assert restored.num_state_entries() == 0
