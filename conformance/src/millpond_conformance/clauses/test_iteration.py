"""Clauses: iterations over map states, and the entries that they return, renew and remove."""

from datetime import timedelta

import millpond as mp
import pytest

from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.map_walks import WalkedMap

SCORES = mp.MapStateDescriptor("scores", str, int)
WAYS = pytest.mark.parametrize("flushed", [False, True])


def filled(backend, descriptor):
    """Return a map state with entries for two keys in two namespaces."""
    state = backend.get_partitioned_state(descriptor, "n")
    for number, (key, space) in enumerate((("a", "n"), ("a", "m"), ("b", "n"), ("b", "m"))):
        backend.set_current_key(key)
        state.set_current_namespace(space)
        state.put_all({"same": number, f"only {key}{space}": number})
    return state


def chosen(backend, state, key, space):
    """Select a key and a namespace, and return the state."""
    backend.set_current_key(key)
    state.set_current_namespace(space)
    return state


@pytest.mark.clause("K18")
@WAYS
@pytest.mark.parametrize("way", ["items", "keys", "values"])
def test_an_iteration_belongs_to_the_key_of_its_call(open_backend: BackendOpener, flushed, way):
    """items(), keys() and values() return entries of the key and namespace at the time of the call.

    This holds even if another key and namespace are current when the iteration begins or goes on.
    """
    backend = open_backend()
    state = filled(backend, SCORES)
    if flushed:
        backend.flush()
    later = getattr(chosen(backend, state, "a", "n"), way)()
    begun = getattr(state, way)()
    first = next(begun)
    chosen(backend, state, "b", "m")
    expected = {"items": {("same", 0), ("only an", 0)}, "keys": {"same", "only an"}, "values": {0}}
    assert set(later) == expected[way]
    assert {first, *begun} == expected[way]
    assert dict(state.items()) == {"same": 3, "only bm": 3}
    assert "only an" not in state


@pytest.mark.clause("K19")
def test_an_iteration_sees_changes_while_a_snapshot_runs(open_backend: BackendOpener, storage):
    """An iteration shows changes that are made during it, even while a snapshot runs.

    It returns no entry that was removed before the iteration reached it, and no overwritten value.
    """
    backend = open_backend()
    backend.set_current_key("k")
    state = backend.get_partitioned_state(SCORES)
    state.put_all({f"e{number}": number for number in range(8)})
    backend.flush()
    view = backend.freeze()
    seen: dict[str, int] = {}
    for name, value in state.items():
        if not seen:
            state.put_all(dict.fromkeys(state, -1))
            for number in range(4):
                state.remove(f"e{number}")
        seen[name] = value
    view.close()
    first = next(iter(seen))
    assert seen == {first: seen[first], **{f"e{n}": -1 for n in range(4, 8) if f"e{n}" != first}}


@pytest.mark.clause("K20")
def test_an_iteration_sees_what_was_flushed_meanwhile(open_backend: BackendOpener):
    """A flush during an iteration does not undo changes of entries that are not yet returned.

    An iteration returns all entries even if each returned entry is removed and flushed during it.
    """
    backend = open_backend()
    backend.set_current_key("k")
    state = backend.get_partitioned_state(SCORES)
    state.put_all({f"e{number}": number for number in range(8)})
    backend.flush()
    entries = state.items()
    first, _ = next(entries)
    state.put_all({f"e{number}": -1 for number in range(4)})
    for number in range(4, 8):
        state.remove(f"e{number}")
    backend.flush()
    expected = {f"e{number}": -1 for number in range(4) if f"e{number}" != first}
    assert dict(entries) == expected
    for flushed in (1, 7, 16):
        state.clear()
        state.put_all({f"e{number}": number for number in range(100)})
        backend.flush()
        for number, entry in enumerate(state.keys(), 1):
            state.remove(entry)
            if number % flushed == 0:
                backend.flush()
        assert (number, state.is_empty()) == (100, True)


@pytest.mark.clause("K24")
@pytest.mark.parametrize("stored", ["nothing", "half", "all"])
def test_an_iteration_gives_each_entry_once(open_backend: BackendOpener, stored):
    """An iteration returns each remaining entry once, even if other entries change during it.

    This also holds if entries were put and removed since the last flush, and in a second iteration.
    """
    backend = open_backend(key_type=int)
    state = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
    for seed in range(40):
        backend.set_current_key(seed)
        walked = WalkedMap(state, seed)
        for step in range(24):
            walked.change()
            if step == {"nothing": None, "half": 11, "all": 23}[stored]:
                backend.flush()
                backend.set_current_key(seed)
        for _ in range(4):
            walk = walked.walk()
            assert len(walk.seen) == len(set(walk.seen))
            assert not walk.ended or walk.before - walk.removed <= set(walk.seen)
        assert dict(state.items()) == walked.model


@pytest.mark.clause("T14")
@WAYS
def test_what_an_iteration_refreshes_and_removes_is_its_own(
    open_backend: BackendOpener, clock, flushed
):
    """With TTL, an iteration that goes on under another key does not change that key's entries."""
    ttl = mp.StateTtlConfig(timedelta(milliseconds=10), mp.UpdateType.ON_READ_AND_WRITE)
    backend = open_backend()
    state = filled(backend, mp.MapStateDescriptor("s", str, int).enable_time_to_live(ttl))
    clock.set(6)
    chosen(backend, state, "a", "n").put("fresh", 9)
    if flushed:
        backend.flush()
    clock.set(12)
    begun = state.items()
    chosen(backend, state, "b", "m").put_all({"same": 7, "fresh": 8})
    assert list(begun) == [("fresh", 9)]
    assert dict(state.items()) == {"same": 7, "fresh": 8}
    clock.set(20)
    assert dict(chosen(backend, state, "a", "n").items()) == {"fresh": 9}
    assert dict(chosen(backend, state, "b", "m").items()) == {"same": 7, "fresh": 8}
    backend.set_current_key("b")
    assert set(backend.keys_and_namespaces("s")) - {("a", "m"), ("b", "n")} == {
        ("a", "n"),
        ("b", "m"),
    }
