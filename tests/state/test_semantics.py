"""Semantics of states that the kit does not test: local copies, small buffers, one key at a time."""

from datetime import timedelta
from pathlib import Path

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.backend.single_key import SingleKeyBackend
from millpond.operator.opening import open_batch_backend
from millpond_conformance.bulk_programs import BulkProgram
from millpond_conformance.opening import open_at
from millpond_conformance.programs import SemanticsProgram

BYTE_STORES = pytest.mark.parametrize("name", ["lmdb", "rocksdb"])


def run_programs(seeds, open_backend, clock, storage, **options):
    """Run programs, and name the one that fails."""
    for seed in seeds:
        try:
            SemanticsProgram(seed, open_backend, clock, storage, **options).run()
        except AssertionError as error:
            error.add_note(f"the program of seed {seed}")
            raise


def small(name, folder: Path, clock):
    """Opens backends whose buffer is flushed after a few entries."""
    count = 0

    def open_one(parts):
        nonlocal count
        count += 1
        return mp.open_keyed_backend(
            name,
            key_type=str,
            directory=folder / str(count),
            clock=clock,
            restore=parts,
            config=mp.Config({"buffer.max-entries": 3}),
        )

    return open_one


@BYTE_STORES
def test_programs_with_a_small_buffer(name, tmp_path):
    """Flushes in the middle of operations do not change results."""
    clock = mp.ManualClock(0)
    storage = mp.checkpoint_storage(f"memory:small-{name}")
    run_programs(range(1000, 1008), small(name, tmp_path, clock), clock, storage)


@BYTE_STORES
def test_programs_of_many_keys_with_a_small_buffer(name, tmp_path):
    """With a small buffer, flushes in the middle of bulk calls do not change results."""
    clock = mp.ManualClock(0)
    storage = mp.checkpoint_storage(f"memory:small-many-{name}")
    for seed in range(3000, 3008):
        BulkProgram(seed, small(name, tmp_path / str(seed), clock), clock, storage).run()


@pytest.mark.soak
@BYTE_STORES
def test_many_programs_with_a_small_buffer(name, tmp_path):
    """With a small buffer, two thousand programs give the results of the model."""
    clock = mp.ManualClock(0)
    storage = mp.checkpoint_storage(f"memory:small-soak-{name}")
    run_programs(range(2000, 4000), small(name, tmp_path, clock), clock, storage)


def test_programs_for_one_key_at_a_time():
    """The state of batch execution gives the same results, as long as the key remains."""
    clock = mp.ManualClock(0)

    def open_one(_parts):
        backend = open_batch_backend(key_type=str)
        parameters = attrs.evolve(backend.parameters, clock=clock)
        backend.close()
        return SingleKeyBackend(parameters)

    run_programs(range(100), open_one, clock, None, keys=("a",))


def test_an_iteration_goes_on_when_its_only_key_has_gone():
    """In batch execution, an iteration ends with its key's entries, and does not affect other keys."""
    with open_batch_backend(key_type=str) as backend:
        ttl = mp.StateTtlConfig(timedelta(days=1), mp.UpdateType.ON_READ_AND_WRITE)
        descriptor = mp.MapStateDescriptor("m", str, int).enable_time_to_live(ttl)
        state = backend.get_partitioned_state(descriptor)
        backend.set_current_key("a")
        state.put_all({"x": 1, "y": 2})
        entries = state.items()
        backend.set_current_key("b")
        state.put("z", 3)
        assert dict(entries) == {"x": 1, "y": 2}
        assert dict(state.items()) == {"z": 3}


@BYTE_STORES
def test_a_shorter_ttl_counts_in_a_local_copy(name, tmp_path):
    """If a reopened store gets a shorter TTL, the clean-up uses it."""
    clock = mp.ManualClock(0)

    def opened(duration):
        backend = open_at(name, tmp_path, ("v",), clock)
        descriptor = mp.ValueStateDescriptor("s", int)
        descriptor.enable_time_to_live(mp.StateTtlConfig(duration))
        return backend, backend.get_partitioned_state(descriptor)

    backend, state = opened(timedelta(days=1))
    backend.set_current_key("k")
    state.update(1)
    backend.flush("v")
    backend.close()
    clock.set(50)
    backend, _ = opened(timedelta(milliseconds=60))
    assert backend.version == "v"
    assert backend.num_state_entries() == 1
    clock.set(60)
    assert backend.num_state_entries() == 0
    assert backend.counters()["expired_removed"] == 1
    backend.close()


@pytest.mark.parametrize("name", ["heap", "lmdb"])
def test_timers_of_a_failed_backend_do_not_fire(name, tmp_path):
    """A failed backend fires no timers, neither due nor all."""
    with mp.open_keyed_backend(name, key_type=str, directory=tmp_path) as backend:
        backend.set_current_key("k")
        timers = backend.timer_queue("event")
        timers.register(1, mp.VOID_NAMESPACE)
        backend.fail(OSError("the disk is gone"))
        for call in (
            lambda: list(timers.due(5)),
            lambda: list(timers.take_all()),
            timers.earliest,
            lambda: timers.register(2, mp.VOID_NAMESPACE),
        ):
            with pytest.raises(errors.BackendFailedError, match="the disk is gone"):
                call()


@pytest.mark.parametrize("name", ["heap", "lmdb", "rocksdb"])
def test_what_expires_in_the_buffer_is_told_alike(name, tmp_path):
    """Entries that expire in the buffer are handled the same on all backends."""
    clock = mp.ManualClock(0)
    ttl = mp.StateTtlConfig(timedelta(milliseconds=10))
    with mp.open_keyed_backend(name, key_type=int, directory=tmp_path, clock=clock) as backend:
        value = mp.ValueStateDescriptor("v", int).enable_time_to_live(ttl)
        backend.set_current_key(1)
        backend.get_partitioned_state(value).update(1)
        clock.advance(12)
        assert list(backend.keys("v")) == []
        backend.set_current_key(2)
        backend.get_partitioned_state(value).update(1)
        clock.advance(12)
        assert backend.num_state_entries() == 0


@pytest.mark.parametrize("name", ["heap", "lmdb", "rocksdb"])
def test_keys_of_what_has_expired_are_told_alike(name, tmp_path):
    """On all backends, listing keys removes expired entries first, like counting and visiting."""
    clock, seen = mp.ManualClock(0), []
    with mp.open_keyed_backend(name, key_type=int, directory=tmp_path, clock=clock) as backend:
        timed = mp.ValueStateDescriptor("t", int)
        timed.enable_time_to_live(mp.StateTtlConfig(timedelta(milliseconds=10)))
        state = backend.get_partitioned_state(timed)
        for key in range(3):
            clock.advance(5)
            backend.set_current_key(key)
            state.update(key)
        backend.flush()
        clock.advance(5)
        assert set(backend.keys("t")) == {2}
        assert backend.num_state_entries() == 1
        backend.apply_to_all_keys(timed, lambda key, _: seen.append(key))
        assert seen == [2]


@pytest.mark.parametrize("name", ["heap", "lmdb", "rocksdb"])
def test_what_a_bulk_read_renews_is_not_what_it_returns(name, tmp_path):
    """Reads that renew the TTL return copies, single and bulk."""
    ttl = mp.StateTtlConfig(timedelta(days=1), mp.UpdateType.ON_READ_AND_WRITE)
    descriptor = mp.ValueStateDescriptor("v", tuple[list[int], ...]).enable_time_to_live(ttl)
    with mp.open_keyed_backend(name, key_type=str, directory=tmp_path) as backend:
        state = backend.get_partitioned_state(descriptor)
        state.update_many(["a", "b"], [([1],), ([2],)])
        for found in state.get_many(["a", "b"]):
            found[0].append(99)
        assert state.get_many(["a", "b"]) == [([1],), ([2],)]
        assert state.at("a").value() == ([1],)
