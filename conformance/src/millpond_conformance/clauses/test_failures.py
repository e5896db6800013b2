"""Clauses: failures during a flush, a snapshot or a request lose and repeat no change."""

from datetime import timedelta
from typing import Any

import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.faults import Fault, FaultySerializer, InjectedError
from millpond_conformance.fixtures import BackendOpener

STRATEGIES = pytest.mark.parametrize("strategy", ["full", "changelog"])


def states(backend: Any, fault: Fault | None = None) -> dict[str, Any]:
    """Return states by name: two values, a list, a map and a reducing state."""

    def typed(plain: Any) -> Any:
        return plain if fault is None else FaultySerializer(plain, fault)

    descriptors = (
        mp.ValueStateDescriptor("first", typed(int)),
        mp.ListStateDescriptor("list", typed(int)),
        mp.MapStateDescriptor("map", str, typed(int)),
        mp.ReducingStateDescriptor("sum", int.__add__, typed(int)),
        mp.ValueStateDescriptor("value", typed(list[int])),
    )
    return {each.name: backend.get_partitioned_state(each) for each in descriptors}


def write(backend: Any, held: dict[str, Any], number: int) -> None:
    """Write `number` to every state of three keys, and set a timer for each key."""
    for key in ("a", "b", "c"):
        backend.set_current_key(key)
        held["first"].update(number)
        held["list"].add(number)
        held["map"].put_all({"same": number, f"e{number}": number})
        held["sum"].add(number)
        held["value"].update([number])
        backend.timer_queue("event").register(number, mp.VOID_NAMESPACE)


def shown(backend: Any, held: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of the states for the three keys."""
    found = {}
    for key in ("a", "b", "c"):
        backend.set_current_key(key)
        first, value = held["first"].value(), held["value"].value()
        entries = sorted(held["map"].items())
        found[key] = (first, held["list"].get(), entries, held["sum"].get(), value)
    return found


def expected(*numbers: int) -> dict[str, Any]:
    """Return the result of `shown` after a call of `write` for each of `numbers`."""
    last = numbers[-1]
    entries = sorted({"same": last, **{f"e{number}": number for number in numbers}}.items())
    return {key: (last, [*numbers], entries, sum(numbers), [last]) for key in ("a", "b", "c")}


def refuses_everything(backend: Any) -> bool:
    """Check that every call of a failed backend raises BackendFailedError, and return True."""
    calls = (
        lambda: backend.set_current_key("a"),
        lambda: backend.get_partitioned_state(mp.ValueStateDescriptor("first", int)),
        lambda: backend.flush(None),
        lambda: list(backend.keys("first")),
        backend.num_state_entries,
        lambda: backend.snapshot(99, mp.checkpoint_storage("memory:failed")),
    )
    for call in calls:
        with pytest.raises(errors.BackendFailedError):
            call()
    return True


@pytest.mark.clause("D1")
@STRATEGIES
def test_a_failing_serializer_loses_nothing(open_backend: BackendOpener, storage, strategy):
    """If serializing a value fails once, the next snapshot still holds all changes."""
    fault = Fault()
    backend = open_backend(config=mp.Config({"state.snapshot.strategy": strategy}))
    held = states(backend, fault)
    write(backend, held, 1)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    numbers, failed = [1], 0
    for call in (1, 4, 8, 13, 18):
        numbers.append(numbers[-1] + 1)
        write(backend, held, numbers[-1])
        try:
            with fault.armed(call):
                backend.snapshot(100 + call, storage).result()
        except InjectedError:
            failed += 1
        assert shown(backend, held) == expected(*numbers)
    assert failed >= 3, "a store may serialize lists when they are written, not all values"
    handle = backend.snapshot(200, storage).result().handle
    restored = open_backend(restore=[handle])
    assert shown(restored, states(restored)) == expected(*numbers)
    due = sorted((timer.key, timer.timestamp) for timer in restored.timer_queue("event").due(9))
    assert due == [(key, number) for key in ("a", "b", "c") for number in numbers]


@pytest.mark.clause("D2")
def test_a_failing_listener_fails_the_backend(open_backend: BackendOpener, storage):
    """After a change listener has failed, the backend refuses every call but close."""
    backend = open_backend(config=mp.Config({"state.snapshot.strategy": "changelog"}))
    held = states(backend)
    write(backend, held, 1)
    handle = backend.snapshot(1, storage).result().handle
    backend.notify_checkpoint_complete(1)
    fault = Fault()
    backend.add_change_listener(lambda _: fault.pass_or_fail())
    write(backend, held, 2)
    with fault.armed(), pytest.raises(InjectedError):
        backend.snapshot(2, storage).result()
    assert refuses_everything(backend)
    with pytest.raises(errors.BackendFailedError):
        held["first"].value()
    backend.close()
    restored = open_backend(restore=[handle])
    assert shown(restored, states(restored)) == expected(1)


@pytest.mark.clause("D3")
def test_a_failed_snapshot_that_is_confirmed_loses_nothing(open_backend: BackendOpener, storage):
    """If a snapshot fails at its start, later ones do not build on it, even if it was confirmed."""
    backend = open_backend(config=mp.Config({"state.snapshot.strategy": "changelog"}))
    held = states(backend)
    write(backend, held, 1)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    write(backend, held, 2)
    strategy: Any = backend.strategy("changelog")
    plain, fault = strategy.launch, Fault()

    def launch(*arguments: Any) -> Any:
        fault.pass_or_fail()
        return plain(*arguments)

    strategy.launch = launch
    with fault.armed(), pytest.raises(InjectedError):
        backend.snapshot(2, storage)
    backend.notify_checkpoint_complete(2)
    write(backend, held, 3)
    handle = backend.snapshot(3, storage).result().handle
    restored = open_backend(restore=[handle])
    assert shown(restored, states(restored)) == expected(1, 2, 3)


def failing_requests(backend: Any) -> Fault:
    """Return a fault that can fail right after `backend` has created a requested state."""
    plain, fault = backend.make_state, Fault()

    def make(registered: Any) -> Any:
        made = plain(registered)
        fault.pass_or_fail()
        return made

    backend.make_state = make
    return fault


@pytest.mark.clause("D4")
def test_a_failed_request_keeps_what_was_restored(open_backend: BackendOpener, storage):
    """If the first request of a restored state fails, the content of the state is not lost.

    Later requests and snapshots have the content.
    """
    backend = open_backend()
    write(backend, states(backend), 1)
    handle = backend.snapshot(1, storage).result().handle
    restored = open_backend(restore=[handle])
    fault = failing_requests(restored)
    for call in (1, 2, 2, 2, 2):  # the request of each of the five states fails once
        with fault.armed(call), pytest.raises(InjectedError):
            states(restored)
    again = open_backend(restore=[restored.snapshot(2, storage).result().handle])
    assert shown(again, states(again)) == expected(1)
    assert shown(restored, states(restored)) == expected(1)


@pytest.mark.clause("D5")
@pytest.mark.switches_ttl
def test_a_failed_request_migrates_no_value_twice(open_backend: BackendOpener, storage):
    """If a request fails after it has migrated values, they are not migrated a second time."""
    backend = open_backend()
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
    backend.set_current_key("k")
    state.update(7)
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    fault = failing_requests(restored)
    ttl = mp.StateTtlConfig(timedelta(hours=1))
    descriptor = mp.ValueStateDescriptor("v", int).enable_time_to_live(ttl)
    with fault.armed(), pytest.raises(InjectedError):
        restored.get_partitioned_state(descriptor)
    restored.set_current_key("k")
    assert restored.get_partitioned_state(descriptor).value() == 7
