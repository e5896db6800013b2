"""Clauses: bulk calls for many keys give the same results as single calls, one after the other."""

import random
from typing import Any

import millpond as mp
import pytest
from hypothesis import settings
from millpond import errors, functions

from millpond_conformance.bulk_programs import BulkProgram
from millpond_conformance.clauses.test_async_snapshots import (
    FULL,
    SlowStorage,
    begins_early,
    runs_alone,
)
from millpond_conformance.fixtures import BackendOpener

KEYS = [f"key-{number}" for number in range(300)]
TOTAL = mp.ValueStateDescriptor("total", int)
TEXT = mp.ValueStateDescriptor("text", str)
ITEMS = mp.ListStateDescriptor("items", int)
MOST = mp.ReducingStateDescriptor("most", functions.max, int)
LOG = mp.Config({"state.snapshot.strategy": "changelog"})


@pytest.mark.clause("B1")
def test_many_values(open_backend: BackendOpener):
    """A single read returns the value of a bulk write, and a bulk read returns single writes."""
    backend = open_backend()
    state = backend.get_partitioned_state(TOTAL, "space")
    state.update_many(KEYS, range(300))
    state.at("key-7").update(-7)
    backend.flush()
    state.at("key-8").update(-8)
    expected = [-number if number in (7, 8) else number for number in range(300)]
    assert [state.at(key).value() for key in KEYS] == expected
    assert state.get_many([*KEYS, "nobody"]).to_pylist() == [*expected, None]
    assert state.get_many(["key-9", "key-9"]).to_pylist() == [9, 9]


@pytest.mark.clause("B2")
def test_null_clears_one_of_many(open_backend: BackendOpener):
    """In `update_many` a null clears only its key; `clear_many` clears only the given keys.

    This includes values that were flushed before. If a key is repeated, its last value counts.
    """
    for flushed in (False, True):
        backend = open_backend()
        state = backend.get_partitioned_state(TOTAL)
        state.update_many(KEYS, range(300))
        if flushed:
            backend.flush()
        state.update_many(KEYS[:3], [None, 5, None])
        state.clear_many(KEYS[4:])
        assert state.get_many(KEYS[:5]).to_pylist() == [None, 5, None, 3, None]
        assert sorted(backend.keys("total")) == ["key-1", "key-3"]
        state.update_many(["key-0", "key-0", "key-1", "key-1"], [None, 6, 7, None])
        assert state.get_many(KEYS[:2]).to_pylist() == [6, None]


@pytest.mark.clause("B3")
def test_all_of_many_or_none(open_backend: BackendOpener):
    """If a bulk call refuses one of its keys or values, it writes nothing."""
    backend = open_backend()
    state = backend.get_partitioned_state(TOTAL)
    state.update_many(["a", "b"], [1, 2])
    for keys, values, error in (
        (["a", "b"], [3, "four"], errors.StateTypeError),
        (["a", "b"], [3], errors.BulkCallError),
        (["a", None], [3, 4], errors.NullValueError),
        (["a", 5], [3, 4], errors.StateTypeError),
    ):
        with pytest.raises(error):
            state.update_many(keys, values)
    assert state.get_many(["a", "b"]).to_pylist() == [1, 2]
    largest = backend.get_partitioned_state(mp.ReducingStateDescriptor("largest", max, int))
    largest.add_many(["a", "b"], [1, 2], [0, 1])
    for wrong, refusal in (("8", errors.StateTypeError), (None, errors.NullValueError)):
        with pytest.raises(refusal):
            largest.add_many(["a", "b"], [7, wrong], [0, 1])
    assert largest.get_many(["a", "b"]).to_pylist() == [1, 2]


@pytest.mark.clause("B4")
def test_contributions_to_many(open_backend: BackendOpener):
    """`add_many` adds each element to the key at its position.

    For a function that Millpond knows, it first combines the elements of the call.
    """
    backend = open_backend()
    plain: dict[Any, Any] = {functions.sum: lambda a, b: a + b, functions.last: lambda _, b: b,
             functions.min: min, functions.max: max}  # fmt: skip
    for number, (known, own) in enumerate(plain.items()):
        states = [
            backend.get_partitioned_state(mp.ReducingStateDescriptor(f"{which}-{number}", f, int))
            for which, f in (("known", known), ("own", own))
        ]
        for state in states:
            state.at("b").add(5)
            state.add_many(["a", "b", "c"], [4, 9, 1, -3, 2], [0, 1, 0, 1, 0])
        found = [state.get_many(["a", "b", "c"]).to_pylist() for state in states]
        assert found[0] == found[1]
        assert found[0][2] is None


@pytest.mark.clause("B5")
@pytest.mark.switches_ttl
def test_programs_with_many_keys(open_backend, clock, storage):
    """For each kind of state and each TTL, bulk calls give the results of a model, key by key."""
    seeds = range(settings().max_examples)
    BulkProgram.run_all(seeds, lambda parts: open_backend(restore=parts), clock, storage)


def write_many(backend, number):
    """Overwrite, clear and add by bulk calls, whose values and keys depend on `number`."""
    total = backend.get_partitioned_state(TOTAL)
    total.update_many(KEYS[:20], [number] * 20)
    total.update_many(KEYS[20:30], [None, number] * 5)
    total.clear_many(KEYS[number : number + 3])
    backend.get_partitioned_state(ITEMS).add_many(KEYS[:5], [number] * 5)
    backend.get_partitioned_state(MOST).add_many(KEYS[:5], [number, 1, 2, 3, number])


def read_many(backend):
    """Return the contents of all keys that `write_many` changes."""
    states = [backend.get_partitioned_state(each) for each in (TOTAL, ITEMS, MOST)]
    return [list(map(str, state.get_many(KEYS[:35]))) for state in states]


@pytest.mark.clause("B6")
@pytest.mark.parametrize("running", [False, True])
def test_snapshots_of_what_is_written_for_many_keys(open_backend, storage, running):
    """The changes of bulk calls are in the next delta, and in no running snapshot."""
    backend = open_backend(config=FULL if running else LOG)
    begins_early(backend)
    slow = SlowStorage()
    if not (running and runs_alone(backend)):
        slow.gate.set()
    taken = []
    for number in range(1, 4):
        write_many(backend, number)
        future = backend.snapshot(number, slow if running else storage)
        taken.append((future, read_many(backend)))
        if not running:
            future.result()
            backend.notify_checkpoint_complete(number)
    write_many(backend, 7)
    slow.gate.set()
    for future, then in taken:
        assert read_many(open_backend(restore=[future.result(30).handle])) == then


@pytest.mark.clause("B7")
def test_many_keys_of_every_length(open_backend: BackendOpener, storage):
    """A bulk call with thousands of keys, or with long keys, gives each key its own value.

    This includes repeated keys, keys without an entry, and calls whose keys all have one length.
    """
    lengths = (1, 2, 15, 255, 490, 511, 512, 700, 4096)
    keys = [f"{number:04}" for number in range(4500)]
    keys += [letter * length for length in lengths for letter in "xyz"]
    random.Random(1).shuffle(keys)  # noqa: S311 - an order, no secret
    values = ["" if at % 7 == 0 else str(at) * (at % 11) for at in range(len(keys))]
    backend = open_backend()
    state = backend.get_partitioned_state(TEXT)
    state.update_many(keys, values)
    backend.flush()
    assert state.get_many(keys).to_pylist() == values
    changed = [None if at % 5 == 0 else value for at, value in enumerate(values[:1200])]
    state.update_many(keys[:1200], changed)
    now = [*changed, *values[1200:]]
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    for each in (backend, restored):
        found = each.get_partitioned_state(TEXT)
        wanted = ["nobody", *keys, *keys[:50][::-1], "no one"]
        assert found.get_many(wanted).to_pylist() == [None, *now, *now[:50][::-1], None]
    for length in (*range(240, 260), *range(480, 520)):
        alike = [letter * length for letter in "uvw"]
        state.update_many(alike, ["1", "2", "3"])
        backend.flush()  # the store has keys of this length only in this bundle
        assert state.get_many([*alike, "t" * length]).to_pylist() == ["1", "2", "3", None]
