"""Clauses: timers fire once and in order, and are part of every snapshot."""

import random
from typing import Any

import millpond as mp
import pytest
from millpond import errors
from typing_extensions import override

from millpond_conformance.fixtures import BackendOpener

TOTAL = mp.ValueStateDescriptor("total", int)


def queue(backend):
    """Return the event-time timers of a backend."""
    return backend.timer_queue(mp.TimeDomain.EVENT_TIME.value)


def register(backend, key, *timestamps):
    """Set timers for `key` at the given times."""
    backend.set_current_key(key)
    for timestamp in timestamps:
        queue(backend).register(timestamp, mp.VOID_NAMESPACE)


def due(backend, timestamp):
    """Remove the timers that are due at `timestamp`; return their keys and times."""
    return [(timer.timestamp, timer.key) for timer in queue(backend).due(timestamp)]


@pytest.mark.clause("M1")
def test_timers_fire_once_and_in_order(open_backend: BackendOpener):
    """The timers of all keys fire in the order of their times, and negative times are allowed.

    A timer that is set twice fires once.
    """
    backend = open_backend()
    register(backend, "a", 30, -5, 10, 10)
    register(backend, "b", 20, 10)
    assert queue(backend).earliest() == -5
    found = due(backend, 20)
    assert [timestamp for timestamp, _ in found] == [-5, 10, 10, 20]
    assert sorted(found) == [(-5, "a"), (10, "a"), (10, "b"), (20, "b")]
    assert due(backend, 20) == []
    assert queue(backend).earliest() == 30
    backend.flush()
    assert due(backend, 29) == []
    assert due(backend, 30) == [(30, "a")]
    assert queue(backend).earliest() is None


@pytest.mark.clause("M2")
def test_deleted_timers_do_not_fire(open_backend: BackendOpener):
    """A timer that was deleted before or after a flush does not fire.

    Deleting a missing timer raises no error.
    """
    backend = open_backend()
    register(backend, "a", 1, 2, 3)
    queue(backend).delete(2, mp.VOID_NAMESPACE)
    backend.flush()
    queue(backend).delete(3, mp.VOID_NAMESPACE)
    queue(backend).delete(99, mp.VOID_NAMESPACE)
    assert due(backend, 100) == [(1, "a")]
    register(backend, "a", 2)
    assert due(backend, 100) == [(2, "a")]


@pytest.mark.clause("M3")
def test_timers_change_while_others_fire(open_backend: BackendOpener):
    """While timers fire, a new timer whose time has come fires too; a deleted timer does not."""
    backend = open_backend()
    register(backend, "a", 1, 5, 7)
    fired = []
    for timer in queue(backend).due(10):
        fired.append(timer.timestamp)
        backend.set_current_key(timer.key)
        if timer.timestamp == 1:
            queue(backend).register(3, mp.VOID_NAMESPACE)
            queue(backend).register(50, mp.VOID_NAMESPACE)
            queue(backend).delete(5, mp.VOID_NAMESPACE)
    assert fired == [1, 3, 7]
    assert due(backend, 100) == [(50, "a")]


@pytest.mark.clause("M4")
@pytest.mark.parametrize("strategy", ["changelog", "full", "savepoint"])
def test_timers_are_part_of_snapshots(open_backend: BackendOpener, storage, strategy):
    """A restored backend has the timers that were set, without the fired and deleted ones."""
    backend = open_backend(config=mp.Config({"state.snapshot.strategy": strategy}))
    register(backend, "a", 1, 2, 3, 1 << 62)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    assert due(backend, 1) == [(1, "a")]
    queue(backend).delete(2, mp.VOID_NAMESPACE)
    register(backend, "b", 4)
    handle = backend.snapshot(2, storage).result().handle
    restored = open_backend(restore=[handle])
    again = open_backend(restore=[restored.snapshot(3, storage).result().handle])
    assert due(again, 100) == [(3, "a"), (4, "b")]
    assert queue(again).earliest() == 1 << 62


@pytest.mark.clause("M5")
def test_timers_follow_their_key_groups(open_backend: BackendOpener, storage):
    """After rescaling from two subtasks to three, every timer is in exactly one of them."""
    handles = []
    for index in range(2):
        groups = mp.key_group_range(128, 2, index)
        backend = open_backend(key_group_range=groups)
        for number in range(100):
            if mp.assign_to_key_group(f"k{number}", 128) in groups:
                register(backend, f"k{number}", number)
        handles.append(backend.snapshot(1, storage).result().handle)
    found = []
    for index in range(3):
        groups = mp.key_group_range(128, 3, index)
        found += due(open_backend(key_group_range=groups, restore=handles), 1000)
    assert sorted(found) == [(number, f"k{number}") for number in range(100)]


@pytest.mark.clause("M6")
def test_timers_are_not_entries(open_backend: BackendOpener, storage):
    """The number of state entries does not count timers, before or after a restore."""
    backend = open_backend()
    register(backend, "a", 1, 2)
    backend.get_partitioned_state(TOTAL).update(1)
    assert backend.num_state_entries() == 1
    handle = backend.snapshot(1, storage).result().handle
    assert open_backend(restore=[handle]).num_state_entries() == 1


@pytest.mark.clause("M7")
@pytest.mark.parametrize("timestamp", ["1", 1.5, None, True, 1 << 63])
def test_wrong_timestamps_are_refused(open_backend: BackendOpener, timestamp):
    """A timestamp that is not a 64-bit int is refused, and so is a timer without a current key."""
    backend = open_backend()
    with pytest.raises(errors.NoCurrentKeyError):
        queue(backend).register(1, mp.VOID_NAMESPACE)
    backend.set_current_key("a")
    with pytest.raises(errors.StateTypeError):
        queue(backend).register(timestamp, mp.VOID_NAMESPACE)
    assert queue(backend).earliest() is None


EDGES = (mp.MIN_TIMESTAMP, mp.MIN_TIMESTAMP + 1, -256, -1, 0, 255, mp.MAX_TIMESTAMP - 1,
         mp.MAX_TIMESTAMP)  # fmt: skip


@pytest.mark.clause("M12")
@pytest.mark.parametrize("groups", [1, 128, 300])
def test_timers_at_the_ends_of_time(open_backend: BackendOpener, groups):
    """A timer is due from its time on, even if that is the smallest or the largest timestamp.

    A timer that is set after its time is due immediately.
    """
    for flushed in (True, False):
        backend = open_backend(max_parallelism=groups)
        for key in "abc":
            register(backend, key, *EDGES)
        if flushed:
            backend.flush()
        for at, moment in enumerate(EDGES):
            assert queue(backend).earliest() == moment
            if moment > mp.MIN_TIMESTAMP and moment - 1 not in EDGES:
                assert due(backend, moment - 1) == []
            assert sorted(due(backend, moment)) == [(moment, key) for key in "abc"], at
        assert queue(backend).earliest() is None
    draw, held, moment = random.Random(groups), set[int](), 0  # noqa: S311 - times, no secret
    for step in range(200):
        held.add(moment + draw.randrange(-30, 30))
        register(backend, "a", *held)
        if step % 3:
            backend.flush()
        moment += draw.randrange(3)
        assert due(backend, moment) == [(each, "a") for each in sorted(held) if each <= moment]
        held = {each for each in held if each > moment}


ANY_BYTES: tuple[tuple[type, tuple[Any, ...]], ...] = (
    (bytes, (b"", b"\0", b"\0\0", b"a", b"\x7f", b"\x80", b"\xff", b"\xff" * 9, b"\xff\0")),
    (int, (0, -1, 255, 256, (1 << 63) - 1, -(1 << 63))),
    (str, ("", "\0", "a", "\uffff", "\U0010ffff", "k" * 600)),
)


@pytest.mark.clause("M13")
@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("groups", [1, 128])
def test_timers_of_any_key_and_namespace(open_backend: BackendOpener, kind, groups):
    """With any bytes as key and namespace, a timer is due at its time, and not earlier.

    The due timer has that key and namespace. It can be deleted without deleting another timer,
    flushed or not.
    """
    declared, values = ANY_BYTES[kind]
    pairs = [(key, space) for key in values for space in values]
    for flushed in (True, False):
        backend = open_backend(key_type=declared, max_parallelism=groups)
        timers = backend.timer_queue("event", declared)
        for moment in (255, 256):
            for key, space in pairs:
                backend.set_current_key(key)
                timers.register(moment, space)
        if flushed:
            backend.flush()
        for key, space in pairs[::3]:
            backend.set_current_key(key)
            timers.delete(255, space)
        left = [pair for at, pair in enumerate(pairs) if at % 3]
        assert list(timers.due(254)) == []
        for moment, those in ((255, left), (256, pairs)):
            assert timers.earliest() == moment
            found = [(timer.key, timer.namespace) for timer in timers.due(moment)]
            assert sorted(found) == sorted(those)


class Reminder(mp.KeyedProcessFunction):
    """A function whose timers fire 10 ms after a key's last row, and by clock 100 ms after it."""

    @override
    def open(self, context):
        self.last = context.get_state(mp.ValueStateDescriptor("last", int))

    @override
    def process_element(self, row, context):
        """Delete the last event-time timer, and set a timer of each kind."""
        service = context.timer_service()
        before = self.last.value()
        if before is not None:
            service.delete_event_time_timer(before + 10)
        self.last.update(context.timestamp)
        service.register_event_time_timer(context.timestamp + 10)
        service.register_processing_time_timer(service.current_processing_time() + 100)

    @override
    def on_timer(self, timestamp, context):
        """Yield the timer's key, time and domain."""
        yield context.current_key, timestamp, context.time_domain


@pytest.mark.clause("M8")
def test_a_function_with_timers(backend_name, tmp_path):
    """The harness fires timers by watermark and clock; snapshots and savepoints contain timers."""
    event, clock = mp.TimeDomain.EVENT_TIME, mp.TimeDomain.PROCESSING_TIME

    def harness(**options):
        return mp.testing.KeyedOperatorHarness(Reminder(), key="k", backend=backend_name, **options)

    with harness() as one:
        one.process({"k": "a"}, timestamp=5)
        one.process({"k": "b"}, timestamp=6)
        one.process({"k": "a"}, timestamp=20)
        one.advance_watermark(16)
        one.advance_watermark(3)
        assert one.output == [("b", 16, event)]
        handle = one.snapshot()
        saved = one.savepoint(tmp_path / "saved")
    for start in (handle, saved, tmp_path / "saved"):
        with harness(restore=start) as two:
            two.advance_processing_time(100)
            assert two.output == []
            two.advance_processing_time(101)
            assert sorted(two.output, key=str) == [("a", 100, clock), ("b", 100, clock)]
            two.advance_watermark(30)
            assert two.output[2:] == [("a", 30, event)]


@pytest.mark.clause("M9")
def test_timers_in_the_local_runner(backend_name):
    """The local runner fires all event-time timers at the end of the rows."""
    rows = [{"k": "a", "t": 1}, {"k": "b", "t": 2}, {"k": "a", "t": 3}]
    out = mp.local.run(
        Reminder(), rows, key="k", backend=backend_name, event_time="t", clock=mp.ManualClock(0)
    )
    assert [(key, timestamp) for key, timestamp, _ in out] == [("b", 12), ("a", 13)]


class Clocks(mp.KeyedProcessFunction):
    """A function that yields the watermark and the processing time, and sets a timer.

    A row with `stop` deletes the timer.
    """

    @override
    def process_element(self, row, context):
        """Set or delete the timer, and yield both times."""
        service = context.timer_service()
        if row.stop:
            service.delete_processing_time_timer(50)
        else:
            service.register_processing_time_timer(50)
        yield service.current_watermark(), service.current_processing_time()

    @override
    def on_timer(self, timestamp, context):
        """Yield the time of the timer that fires."""
        yield "fired", timestamp


@pytest.mark.clause("M10")
def test_times_and_deleted_processing_time_timers(backend_name):
    """The watermark begins at MIN_TIMESTAMP; a deleted processing-time timer does not fire."""
    with mp.testing.KeyedOperatorHarness(
        Clocks(), key="k", backend=backend_name, clock_ms=7
    ) as harness:
        harness.process({"k": "a", "stop": False})
        harness.process({"k": "b", "stop": False})
        harness.advance_watermark(30)
        harness.process({"k": "a", "stop": True})
        harness.advance_processing_time(50)
        assert len(harness.output) == 3
        harness.advance_processing_time(51)
        assert harness.output == [
            (mp.MIN_TIMESTAMP, 7),
            (mp.MIN_TIMESTAMP, 7),
            (30, 7),
            ("fired", 50),
        ]
