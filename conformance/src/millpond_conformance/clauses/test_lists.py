"""Clauses: growing lists keep their order, and an append costs only the appended elements."""

from datetime import timedelta

import millpond as mp
import pytest

from millpond_conformance.fixtures import BackendOpener

ITEMS = mp.ListStateDescriptor("items", bytes)
FIRST = [bytes([number]) * 1000 for number in range(8)]
CHANGELOG = mp.Config({"state.snapshot.strategy": "changelog"})


def on_key(backend, descriptor=ITEMS, key="k"):
    """Set the current key to `key`, and return the list state `descriptor`."""
    backend.set_current_key(key)
    return backend.get_partitioned_state(descriptor)


def confirmed(backend, number, storage):
    """Take a snapshot, confirm it, and return its result."""
    result = backend.snapshot(number, storage).result()
    backend.notify_checkpoint_complete(number)
    return result


@pytest.mark.clause("K21")
@pytest.mark.parametrize("between", [False, True])
def test_appends_keep_their_order(open_backend: BackendOpener, between):
    """A list returns elements in the order in which hundreds of bundles appended them.

    Reads between the appends do not change that.
    """
    backend = open_backend()
    on_key(backend).update(FIRST)
    expected = list(FIRST)
    for number in range(300):
        state = on_key(backend)
        state.add_all([b"%d" % number, b""])
        expected += [b"%d" % number, b""]
        assert not between or state.get() == expected
        backend.flush()
    assert on_key(backend).get() == expected
    assert backend.num_state_entries() == 1
    assert list(backend.keys("items")) == ["k"]


@pytest.mark.clause("K22")
def test_a_list_that_has_grown_can_be_replaced(open_backend: BackendOpener):
    """After `update` or `clear`, no earlier element of a long list remains or reappears."""
    backend = open_backend()
    for change, left in (
        (lambda state: state.update([b"new"]), [b"new"]),
        (lambda state: state.update(FIRST[:5]), FIRST[:5]),
        (lambda state: state.update([]), []),
        (lambda state: state.clear(), []),
    ):
        on_key(backend).update(FIRST)
        for _ in range(20):
            backend.flush()
            on_key(backend).add(b"old")
        change(on_key(backend))
        backend.flush()
        assert on_key(backend).get() == left
        assert backend.num_state_entries() == bool(left)
        on_key(backend).add(b"again")
        backend.flush()
        assert on_key(backend).get() == [*left, b"again"]


@pytest.mark.clause("K23")
def test_lists_that_have_grown_merge(open_backend: BackendOpener):
    """Merged namespaces contain the elements of all of them, both stored and buffered ones."""
    backend = open_backend()

    def list_at(namespace):
        backend.set_current_key("k")
        return backend.get_partitioned_state(ITEMS, namespace=namespace)

    for number in range(20):
        for namespace in (1, 2, 3):
            list_at(namespace).add_all([*FIRST[:2], b"%d" % number])
        backend.flush()
    list_at(2).add(b"last")
    list_at(1).merge_namespaces(1, [2, 3])
    one = [element for number in range(20) for element in (*FIRST[:2], b"%d" % number)]
    for _ in range(2):
        assert sorted(list_at(1).get()) == sorted([*one, *one, *one, b"last"])
        assert list_at(2).get() == list_at(3).get() == []
        assert list(backend.keys_and_namespaces("items")) == [("k", 1)]
        backend.flush()


@pytest.mark.clause("S17")
def test_a_delta_holds_what_was_appended(open_backend: BackendOpener, storage):
    """The delta of one append to a list of 100,000 elements is small and contains that element."""
    backend = open_backend(config=CHANGELOG)
    numbers = mp.ListStateDescriptor("numbers", int)
    on_key(backend, numbers).update(range(100_000))
    confirmed(backend, 1, storage)
    for number in range(2, 6):
        on_key(backend, numbers).add(-number)
        result = confirmed(backend, number, storage)
        assert result.bytes_written < 4096
        restored = on_key(open_backend(restore=[result.handle]), numbers).get()
        assert len(restored) == 100_000 + number - 1
        assert restored[-number + 1 :] == [-each for each in range(2, number + 1)]


@pytest.mark.clause("S18")
@pytest.mark.parametrize("requested", [True, False])
def test_deltas_of_lists_are_told_apart(open_backend: BackendOpener, storage, requested):
    """A delta extends a restored list if its changes are appends; otherwise it replaces the list.

    This holds whether the restored state was requested or only written to the next snapshot.
    """
    backend = open_backend(config=CHANGELOG)
    expected = {"grown": [*FIRST, b"1"], "put": [b"1"], "gone": [], "back": [b"3"], "new": [b"1"]}
    for key in ("grown", "put", "gone", "back"):
        on_key(backend, key=key).update(FIRST)
    confirmed(backend, 1, storage)
    for key in ("grown", "new"):
        on_key(backend, key=key).add(b"1")
    for key in ("put", "back"):
        on_key(backend, key=key).update([b"1"])
    on_key(backend, key="gone").add(b"1")
    confirmed(backend, 2, storage)
    for key in ("gone", "back"):
        on_key(backend, key=key).clear()
    on_key(backend, key="back").add(b"3")
    handle = confirmed(backend, 3, storage).handle
    restored = open_backend(restore=[handle], config=CHANGELOG)
    if not requested:
        handle = confirmed(restored, 4, storage).handle
        restored = open_backend(restore=[handle])
    assert {key: on_key(restored, key=key).get() for key in expected} == expected
    assert restored.num_state_entries() == 4


@pytest.mark.clause("S19")
def test_a_snapshot_between_appends_has_its_own(open_backend: BackendOpener, storage):
    """Each snapshot or savepoint taken between appends holds the lists of that time.

    This applies to lists of many keys in the same key group, each stored in several parts.
    """
    full, keys = mp.Config({"state.snapshot.strategy": "full"}), [f"k{n}" for n in range(60)]
    backend = open_backend(config=full, max_parallelism=1)
    expected, handles = list[bytes](), []
    for number in range(8):
        added = FIRST[:5] if number == 0 else [b"%d" % number]
        expected = [*expected, *added]
        for key in keys:
            on_key(backend, key=key).add_all(added)
        taken = (backend.savepoint if number % 2 else backend.snapshot)(number, storage)
        handles.append((taken, expected))
    for taken, then in handles:
        restored = open_backend(restore=[taken.result().handle], max_parallelism=1)
        for key in keys:
            assert on_key(restored, key=key).get() == then
        on_key(restored, key="k0").add(b"more")
        restored.flush()
        assert on_key(restored, key="k0").get() == [*then, b"more"]


@pytest.mark.clause("C10")
def test_elements_of_a_grown_list_expire(open_backend: BackendOpener, clock):
    """Each element of a list expires at its own time. With its last element the list is gone."""
    descriptor = mp.ListStateDescriptor("fading", bytes)
    descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(milliseconds=100)))
    backend = open_backend()
    on_key(backend, descriptor).update(FIRST)
    for moment in range(1, 20):
        backend.flush()
        clock.set(moment)
        on_key(backend, descriptor).add(b"%d" % moment)
    backend.flush()
    clock.set(109)
    backend.flush()
    assert on_key(backend, descriptor).get() == [b"%d" % moment for moment in range(10, 20)]
    clock.set(119)
    backend.flush()
    assert backend.num_state_entries() == 0
    assert on_key(backend, descriptor).get() == []
