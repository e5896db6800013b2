"""Refused calls change nothing, and do not affect later calls."""

from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors
from millpond.operator.opening import open_batch_backend
from millpond.snapshots.restore import catch_up

BACKENDS = ("heap", "rocksdb", "lmdb")
TOTAL = mp.ValueStateDescriptor("total", int)


@pytest.fixture(params=BACKENDS)
def backend(request, tmp_path):
    """An open backend with string keys."""
    with mp.open_keyed_backend(request.param, key_type=str, directory=tmp_path / "store") as opened:
        yield opened


def test_an_abandoned_round_of_timers_ends_without_the_next_one(backend):
    """Closing an abandoned iteration over timers does not affect a newer one."""
    queue = backend.timer_queue("event-time")
    backend.set_current_key("k")
    for timestamp in range(6):
        queue.register(timestamp, mp.VOID_NAMESPACE)
    old = queue.due(10)
    assert next(old).timestamp == 0
    new = queue.due(10)
    assert next(new).timestamp == 1
    assert list(old) == []
    queue.delete(4, mp.VOID_NAMESPACE)
    queue.register(7, mp.VOID_NAMESPACE)
    assert [timer.timestamp for timer in new] == [2, 3, 5, 7]
    assert queue.earliest() is None


def test_a_round_up_to_no_moment_changes_nothing(backend):
    """A limit that is no timestamp is refused, and the timers remain."""
    queue = backend.timer_queue("event-time")
    backend.set_current_key("k")
    queue.register(5, mp.VOID_NAMESPACE)
    for limit in ("x", 1 << 70):
        with pytest.raises((TypeError, OverflowError)):
            list(queue.due(limit))
    queue.register(6, mp.VOID_NAMESPACE)
    assert [timer.timestamp for timer in queue.due(10)] == [5, 6]


def test_a_queue_of_timers_asked_for_with_another_namespace_type_is_refused(backend):
    """A timer queue cannot be requested with another namespace type; its timers remain."""
    queue = backend.timer_queue("event-time")
    backend.set_current_key("k")
    queue.register(5, mp.VOID_NAMESPACE)
    with pytest.raises(errors.StateMigrationError, match=r"its namespace type .* \(it is in use"):
        backend.timer_queue("event-time", int)
    assert backend.timer_queue("event-time") is queue
    assert [timer.timestamp for timer in queue.due(10)] == [5]


@pytest.mark.parametrize("name", BACKENDS)
def test_refused_appends_flush_nothing(name, tmp_path):
    """Refused appends do not fill the buffer, so the store keeps its version."""
    config = mp.Config({"buffer.max-bytes": "1kb"})
    with mp.open_keyed_backend(name, key_type=str, directory=tmp_path, config=config) as backend:
        items = backend.get_partitioned_state(mp.ListStateDescriptor("items", int))
        backend.set_current_key("k")
        items.add(1)
        backend.flush("v1")
        backend.current.forget()
        for _ in range(50):
            with pytest.raises(errors.NoCurrentKeyError):
                items.add(1)
        assert backend.version == "v1"


class Sum(mp.AggregateFunction[float, float, float]):
    """Aggregate function that sums."""

    def create_accumulator(self):
        """Return 0."""
        return 0

    def add(self, value, accumulator):
        """Add a value."""
        return accumulator + value

    def get_result(self, accumulator):
        """Return the sum."""
        return accumulator

    def merge(self, a, b):
        """Return the sum of both."""
        return a + b


@pytest.mark.parametrize(
    "descriptor",
    [
        mp.AggregatingStateDescriptor("s", Sum(), int),
        mp.FoldingStateDescriptor("s", 0, lambda a, b: a + b, int),
        mp.ReducingStateDescriptor("s", lambda a, b: a + b if b != 7 else "no number", int),
    ],
)
def test_many_elements_are_added_or_none(backend, descriptor):
    """If one of many elements is refused, no key gets any of its elements."""
    state = backend.get_partitioned_state(descriptor)
    wrong = 7 if isinstance(descriptor, mp.ReducingStateDescriptor) else 1.5
    state.add_many(["a", "b"], [10, 20])
    for _ in range(2):
        with pytest.raises(errors.StateTypeError):
            state.add_many(["a", "b"], [1, 1, wrong], [0, 1, 0])
        assert [int(each) for each in state.get_many(["a", "b"])] == [10, 20]
    state.add_many(["a", "b"], [1, 2, 3, 4], [1, 0, 1, 1])
    assert [int(each) for each in state.get_many(["a", "b"])] == [12, 28]


def test_who_catches_up_with_a_snapshot_is_at_its_version(backend, tmp_path):
    """A backend that applies a snapshot's deltas is at its version, even if it only renames a state."""
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    backend.set_current_key("k")
    backend.get_partitioned_state(TOTAL).update(1)
    first = backend.snapshot(1, storage).result().handle
    backend.notify_checkpoint_complete(1)
    with mp.open_keyed_backend(
        backend.name, key_type=str, directory=tmp_path / "behind", restore=[first]
    ) as behind:
        behind.flush(first.version)
        backend.flush()
        renamed = backend.snapshot(2, storage, "renamed").result().handle
        assert catch_up(behind, renamed)
        assert behind.version == renamed.version == "renamed"


@pytest.mark.parametrize("backend", ["rocksdb", "lmdb"], indirect=True)
def test_a_key_that_cannot_be_encoded_is_not_chosen(backend):
    """If a key cannot be encoded, no key is current afterwards."""
    state = backend.get_partitioned_state(TOTAL)
    backend.set_current_key("k")
    state.update(1)
    with pytest.raises(UnicodeEncodeError):
        backend.current.select("\ud800", backend.current.key_group)
    with pytest.raises(errors.NoCurrentKeyError):
        state.update(2)
    assert list(backend.keys("total")) == ["k"]


def test_a_state_in_use_gets_no_time_to_live(backend):
    """A state in use cannot be requested again with a TTL; the error names the difference."""
    backend.get_partitioned_state(TOTAL)
    kept = mp.ValueStateDescriptor("total", int)
    kept.enable_time_to_live(mp.StateTtlConfig(timedelta(seconds=1)))
    with pytest.raises(errors.StateMigrationError, match="declared is int with a time to live"):
        backend.get_partitioned_state(kept)


def test_state_of_batches_wants_a_key_too():
    """In batch execution, state without a current key, and state after close, is refused."""
    with open_batch_backend(key_type=str) as backend:
        state = backend.get_partitioned_state(TOTAL)
        entries = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int))
        uses = (state.value, lambda: state.update(1), state.clear, lambda: entries.put("a", 1))
        for use in uses:
            with pytest.raises(errors.NoCurrentKeyError):
                use()
        backend.set_current_key("k")
        state.update(1)
        backend.current.forget()
        for use in uses:
            with pytest.raises(errors.NoCurrentKeyError):
                use()
        backend.set_current_key("k")
        assert state.value() == 1
    for use in uses:
        with pytest.raises(errors.BackendClosedError):
            use()
