"""Clauses: the clean-up removes expired entries that are never read, at a bounded cost."""

import copy
from datetime import timedelta
from typing import Any

import millpond as mp
import pytest
from millpond.backend import KeyedStateBackend

from millpond_conformance.clauses.test_kinds import Average
from millpond_conformance.fixtures import BackendOpener

TTL = timedelta(milliseconds=100)


def ttl(**options: Any) -> mp.StateTtlConfig:
    """Return a TTL configuration of 100 ms."""
    return mp.StateTtlConfig(TTL, **options)


def physical(backend: KeyedStateBackend) -> int:
    """Return the number of stored rows, including expired ones."""
    backend.flush("now")
    view = backend.freeze()
    try:
        return sum(len(rows) for group in view.key_group_range for _, rows in view.rows(group))
    finally:
        view.close()


def stored_bytes(backend: KeyedStateBackend) -> int:
    """Return the number of bytes of all stored values."""
    view = backend.freeze()
    try:
        groups = (rows for group in view.key_group_range for _, rows in view.rows(group))
        return sum(len(value or b"") for rows in groups for _, value in rows)
    finally:
        view.close()


KINDS = {
    "value": (mp.ValueStateDescriptor("s", int), lambda state: state.update(1)),
    "list": (mp.ListStateDescriptor("s", int), lambda state: state.add_all([1, 2])),
    "map": (mp.MapStateDescriptor("s", str, int), lambda state: state.put_all({"a": 1, "b": 2})),
    "reducing": (mp.ReducingStateDescriptor("s", max, int), lambda state: state.add(1)),
    "aggregating": (
        mp.AggregatingStateDescriptor("s", Average(), tuple[float, int]),
        lambda state: state.add(1),
    ),
    "folding": (
        mp.FoldingStateDescriptor("s", 0, lambda total, value: total + value, int),
        lambda state: state.add(1),
    ),
}


@pytest.mark.clause("C1")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["changelog", "full"])
def test_expired_rows_disappear_without_reads(open_backend: BackendOpener, clock, kind, strategy):
    """The clean-up removes expired entries within a few flushes, even if they are never read.

    This holds with the changelog strategy and with the full strategy.
    """
    descriptor, write = KINDS[kind]
    backend = open_backend(config=mp.Config({"state.snapshot.strategy": strategy}))
    state = backend.get_partitioned_state(descriptor.enable_time_to_live(ttl()))
    for number in range(300):
        backend.set_current_key(f"k{number}")
        write(state)
    stored = physical(backend)
    assert stored >= 300
    clock.set(99)
    assert physical(backend) == stored
    clock.set(100)
    backend.flush(None)
    assert physical(backend) == 0
    assert backend.sweep_metrics()["s"].removed == stored


@pytest.mark.clause("C2")
def test_fresh_entries_stay(open_backend: BackendOpener, clock):
    """The clean-up keeps an entry that was written again, even if its new value is not flushed.

    This includes entries that are written again between two flushes that clean up.
    """
    backend = open_backend()
    descriptor = mp.ValueStateDescriptor("s", int).enable_time_to_live(ttl())
    state = backend.get_partitioned_state(descriptor)
    for number in range(20):
        backend.set_current_key(f"k{number}")
        state.update(1)
    backend.flush(None)
    clock.set(120)
    backend.set_current_key("k3")
    state.update(2)
    assert physical(backend) == 1
    assert state.value() == 2
    keys = [f"k{number}" for number in range(2500)]
    for now in (300, 450):
        clock.set(now)
        backend.flush(None)  # examines some of the entries, which have all expired
        state.update_many(keys, [now] * len(keys))
    for _ in range(9):
        backend.flush(None)
    assert state.get_many(keys).to_pylist() == [450] * len(keys)


@pytest.mark.clause("C3")
def test_only_expired_elements_of_a_list_go(open_backend: BackendOpener, clock):
    """The clean-up removes only the expired elements of a list; its storage becomes smaller."""
    backend = open_backend()
    descriptor = mp.ListStateDescriptor("s", int).enable_time_to_live(ttl())
    state = backend.get_partitioned_state(descriptor)
    backend.set_current_key("k")
    state.add(1)
    clock.set(60)
    state.add(2)
    backend.flush(None)
    clock.set(110)
    backend.flush(None)
    single = open_backend()
    only = single.get_partitioned_state(mp.ListStateDescriptor("s", int).enable_time_to_live(ttl()))
    single.set_current_key("k")
    only.add(2)
    single.flush(None)
    assert stored_bytes(backend) == stored_bytes(single)
    assert state.get() == [2]


@pytest.mark.clause("C4")
def test_clean_up_in_the_background_can_be_switched_off(open_backend: BackendOpener, clock):
    """With the background clean-up switched off, expired entries remain until they are read."""
    backend = open_backend()
    off = ttl(cleanup=mp.CleanupStrategies(in_background=False))
    state = backend.get_partitioned_state(
        mp.ValueStateDescriptor("s", int).enable_time_to_live(off)
    )
    backend.set_current_key("k")
    state.update(1)
    clock.set(1000)
    assert physical(backend) == 1
    assert state.value() is None
    assert physical(backend) == 0


@pytest.mark.clause("C5")
@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_the_cost_of_a_flush_is_bounded(open_backend: BackendOpener, clock, kind):
    """In each flush the clean-up examines a bounded number of entries, and then the next entries.

    Therefore it reaches expired entries that come after many live ones.
    """
    backend = open_backend()
    descriptor, write = KINDS[kind]
    state = backend.get_partitioned_state(descriptor.enable_time_to_live(ttl()))
    for number in range(2500):
        backend.set_current_key(f"k{number}")
        write(state)
    backend.flush(None)
    clock.set(100)
    before = backend.sweep_metrics()["s"].visited
    backend.flush(None)
    looked = backend.sweep_metrics()["s"].visited - before
    assert looked <= 1000
    rounds = next(number for number in range(20) if not physical(backend))
    assert 0 < rounds < 10
    for now in (100, 150):  # in each key group a few entries expire; they come after many live ones
        clock.set(now)
        for number in range(2500):
            backend.set_current_key(f"{'k' if now == 150 else 'z'}{number:04}")
            write(state)
    clock.set(200)
    for _ in range(20):
        backend.flush(None)
    assert not [key for key in backend.keys("s") if key.startswith("z")]


@pytest.mark.clause("C6")
def test_nothing_is_looked_at_before_something_can_expire(open_backend: BackendOpener, clock):
    """If the clean-up finds only live entries, it waits until the oldest of them can expire."""
    backend = open_backend()
    descriptor = mp.ValueStateDescriptor("s", int).enable_time_to_live(ttl())
    state = backend.get_partitioned_state(descriptor)
    for number in range(10):
        backend.set_current_key(f"k{number}")
        state.update(1)
    for now in (1, 2, 3):
        clock.set(now)
        backend.flush(None)
    seen = backend.sweep_metrics()["s"].visited
    clock.set(90)
    backend.flush(None)
    assert backend.sweep_metrics()["s"].visited == seen
    clock.set(100)
    assert physical(backend) == 0


@pytest.mark.clause("C7")
@pytest.mark.parametrize("form", ["full", "savepoint"])
def test_full_snapshots_hold_no_expired_entries(open_backend: BackendOpener, clock, storage, form):
    """Full snapshots and savepoints leave out the expired entries of all states.

    This includes states that were never requested.
    """
    off = ttl(cleanup=mp.CleanupStrategies(in_background=False))
    descriptor = mp.ValueStateDescriptor("s", int).enable_time_to_live(off)
    items = mp.ListStateDescriptor("items", int).enable_time_to_live(off)
    entries = mp.MapStateDescriptor("entries", str, int).enable_time_to_live(off)
    config = mp.Config({"state.snapshot.strategy": "full"})

    def snapshot_result(backend: KeyedStateBackend):
        future = (
            backend.savepoint(1, storage) if form == "savepoint" else backend.snapshot(1, storage)
        )
        return future.result()

    backend = open_backend(config=config)
    state = backend.get_partitioned_state(descriptor)
    for key, moment in (("old", 0), ("new", 50)):
        clock.set(moment)
        backend.set_current_key(key)
        state.update(1)
        backend.set_current_key("both")
        backend.get_partitioned_state(items).add(moment)
        backend.get_partitioned_state(entries).put(key, moment)
    first = snapshot_result(backend)
    assert first.rows_written == 5
    clock.set(120)
    for each in (backend, open_backend(config=config, restore=[first.handle])):
        second = snapshot_result(each)
        assert second.rows_written == 3
        again = open_backend(restore=[second.handle])
        again.set_current_key("both")
        assert again.get_partitioned_state(items).get() == [50]
        assert dict(again.get_partitioned_state(entries).items()) == {"new": 50}


@pytest.mark.clause("C8")
def test_deltas_tell_of_removed_entries(open_backend: BackendOpener, clock, storage):
    """Entries that the clean-up has removed do not reappear after a restore from deltas."""
    backend = open_backend()
    descriptor = mp.ValueStateDescriptor("s", int).enable_time_to_live(ttl())
    state = backend.get_partitioned_state(descriptor)
    for number, key in enumerate(("a", "b"), 1):
        clock.set(number * 70)
        backend.set_current_key(key)
        state.update(number)
        backend.snapshot(number, storage).result()
        backend.notify_checkpoint_complete(number)
    clock.set(175)
    handle = backend.snapshot(3, storage).result().handle
    restored = open_backend(restore=[handle])
    assert physical(restored) == 1
    again = restored.get_partitioned_state(
        mp.ValueStateDescriptor("s", int).enable_time_to_live(ttl())
    )
    values = []
    for key in ("a", "b"):
        restored.set_current_key(key)
        values.append(again.value())
    assert values == [None, 2]


@pytest.mark.clause("C9")
def test_an_explicit_strategy_stays(open_backend: BackendOpener, clock):
    """An explicitly chosen clean-up strategy works even if the background clean-up is off."""
    builder = mp.StateTtlConfig.new_builder(TTL)
    config = builder.cleanup_incrementally(7).disable_cleanup_in_background().build()
    backend = open_backend()
    descriptor = mp.ValueStateDescriptor("s", int).enable_time_to_live(config)
    state = backend.get_partitioned_state(descriptor)
    for number in range(500):
        backend.set_current_key(f"k{number}")
        state.update(1)
    backend.flush(None)
    clock.set(100)
    for number in range(200):
        backend.set_current_key(f"new{number}")
        state.update(1)
    assert physical(backend) == 200


@pytest.mark.clause("C12")
@pytest.mark.parametrize("kind", ["value", "list", "map"])
@pytest.mark.parametrize("restored", [False, True])
def test_the_clean_up_goes_by_the_last_declaration(
    open_backend: BackendOpener, clock, storage, kind, restored
):
    """If a state is declared again with another TTL, the clean-up uses the new TTL.

    This applies to the backend that had the earlier declaration, and to a restored backend.
    """
    template, write = KINDS[kind]
    for before, after in ((10, 1000), (1000, 10)):
        clock.set(0)
        backend = open_backend()
        for ms in (before, after):
            lasting = mp.StateTtlConfig(timedelta(milliseconds=ms))
            declared = copy.copy(template).enable_time_to_live(lasting)
            backend.set_current_key("k")
            state = backend.get_partitioned_state(declared)
            if ms == before:
                write(state)
                handle = backend.snapshot(1, storage).result().handle
                backend = open_backend(restore=[handle]) if restored else backend
        for moment in (500, 501, 502, 503):
            clock.set(moment)
            backend.flush()
        assert bool(backend.num_state_entries()) is (after > before)
        assert list(backend.keys("s")) == (["k"] if after > before else [])


@pytest.mark.clause("C13")
@pytest.mark.parametrize("kind", ["value", "list", "map"])
@pytest.mark.parametrize("by_event", [False, True], ids=["clock", "watermark"])
def test_the_clean_up_knows_own_ttls(open_backend: BackendOpener, clock, kind, by_event):
    """The clean-up removes entries with a short TTL of their own before the state's TTL has passed.

    It keeps entries with a long TTL of their own. This holds for processing time and event time.
    """
    time = mp.TtlTime.EVENT_TIME if by_event else mp.TtlTime.PROCESSING_TIME
    template, write = KINDS[kind]
    backend = open_backend()
    state: Any = backend.get_partitioned_state(
        copy.copy(template).enable_time_to_live(ttl(time=time))
    )

    def wait(moment: int) -> None:
        clock.set(moment)
        backend.advance_watermark(1000 + moment)
        for _ in range(3):
            backend.flush(None)

    wait(0)
    for key, own in (("short", 10), ("plain", None), ("long", 300)):
        backend.set_current_key(key)
        lasting = {} if own is None else {"ttl": timedelta(milliseconds=own)}
        {
            "value": lambda: state.update(1, **lasting),  # noqa: B023 - called at once
            "list": lambda: state.add(1, **lasting),  # noqa: B023
            "map": lambda: state.put("a", 1, **lasting),  # noqa: B023
        }[kind]()
    for moment, expected in (
        (9, {"short", "plain", "long"}),
        (10, {"plain", "long"}),
        (100, {"long"}),
        (299, {"long"}),
        (300, set()),
    ):
        wait(moment)
        assert set(backend.keys("s")) == expected
    write(state)
