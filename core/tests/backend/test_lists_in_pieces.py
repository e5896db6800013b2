"""Long lists are stored in pieces: an append writes only its elements, and reads return one list."""

import tempfile
from datetime import timedelta
from pathlib import Path

import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.spi.portable_rows import Changes

from core.tests.memory_store import STORES, open_memory

ITEMS = mp.ListStateDescriptor("items", bytes)
LONG = [bytes([number]) * 1000 for number in range(10)]
SIZES = st.lists(st.integers(0, 3000), min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "update"]), st.sampled_from("ab"), SIZES),
        st.tuples(st.sampled_from(["clear", "read"]), st.sampled_from("ab")),
        st.tuples(st.sampled_from(["flush", "restore"])),
    ),
    max_size=40,
)


@pytest.fixture
def opened(tmp_path):
    """Return a backend, a list state with a key, and the reported changes of each flush."""
    with open_memory(tmp_path) as backend:
        told = []
        backend.add_change_listener(lambda batch: told.append(dict(batch)))
        backend.set_current_key("k")
        yield backend, backend.get_partitioned_state(ITEMS), told


def test_an_append_costs_what_it_brings(opened):
    """However long the list is, store and changelog get only the new elements."""
    backend, state, told = opened
    state.update(LONG * 100)
    backend.flush()
    stored = STORES[-1].rows["items"].copy()
    state.add(b"new")
    backend.flush()
    changed = [row for row in STORES[-1].rows["items"].items() if row not in stored.items()]
    assert Changes.from_rows(changed).size < 100
    assert Changes.from_rows(told[-1]["items"]).size < 100
    assert state.get() == [*LONG * 100, b"new"]


def test_a_short_list_stays_one_row(opened):
    """A short list is one row in the portable form; only appended elements are reported."""
    backend, state, told = opened
    state.update([b"a"])
    backend.flush()
    ((address, first),) = STORES[-1].rows["items"].items()
    state.add(b"b")
    backend.flush()
    ((again, both),) = STORES[-1].rows["items"].items()
    assert again == address
    assert both == first + first.replace(b"a", b"b")
    assert told[-1] == {"items": [(address, b"\xff\xff\xff\xff" + first.replace(b"a", b"b"))]}


def test_thousands_of_appends_stay_few_pieces(opened):
    """Pieces are merged, so that there are fewer than sixteen of each level."""
    backend, state, _ = opened
    state.update(LONG)
    most = 0
    for number in range(4200):
        state.add(number.to_bytes(2, "big"))
        backend.flush()
        most = max(most, len(STORES[-1].rows["items"]))
    assert most <= 1 + 2 + 3 * 15
    assert state.get() == [*LONG, *(number.to_bytes(2, "big") for number in range(4200))]
    assert backend.num_state_entries() == 1
    assert list(backend.keys("items")) == ["k"]
    state.clear()
    backend.flush()
    assert STORES[-1].rows["items"] == {}


def test_appends_fit_the_buffer(tmp_path):
    """Appended elements count for the buffer's limit, so they are stored early and in order."""
    with open_memory(tmp_path, settings={"buffer.max-bytes": 10_000}) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(ITEMS)
        for number in range(2000):
            state.add(bytes([number % 256]))
        assert len(STORES[-1].rows["items"]) > 1
        assert state.get() == [bytes([number % 256]) for number in range(2000)]


def test_a_missing_piece_is_told(opened):
    """If a piece of a list is missing in the store, a read raises an error."""
    backend, state, _ = opened
    state.update(LONG)
    backend.flush()
    rows = STORES[-1].rows["items"]
    del rows[max(rows)]
    with pytest.raises(errors.CorruptSnapshotError, match="items"):
        state.get()


def test_expired_elements_leave_their_pieces(tmp_path):
    """The clean-up removes expired elements from each piece, and a list without live elements completely."""
    clock = mp.ManualClock(0)
    with open_memory(tmp_path, clock) as backend:
        descriptor = mp.ListStateDescriptor("fading", bytes)
        descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(seconds=1)))
        backend.set_current_key("k")
        state = backend.get_partitioned_state(descriptor)
        state.update(LONG)
        backend.flush()
        clock.now_ms += 500
        state.add(b"later")
        backend.flush()
        clock.now_ms += 500
        backend.flush()
        assert Changes.from_rows(STORES[-1].rows["fading"].items()).size < 100
        assert state.get() == [b"later"]
        clock.now_ms += 500
        backend.flush()
        assert STORES[-1].rows["fading"] == {}


@pytest.mark.parametrize("length", [0, 1, 10])
@pytest.mark.parametrize("written", [False, True])
def test_a_failed_write_appends_once(opened, monkeypatch, length, written):
    """Whether a failed write was done or not, its elements are stored and reported once."""
    backend, state, told = opened
    state.update(LONG[:length])
    backend.flush()
    store = STORES[-1]

    def fail(batch):
        if written:
            type(store).write(store, batch)
        raise OSError("no")

    state.add(b"new")
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", fail)
        with pytest.raises(OSError, match="no"):
            backend.flush()
    assert state.get() == [*LONG[:length], b"new"]
    backend.flush()
    assert state.get() == [*LONG[:length], b"new"]
    assert told[-1]["items"]


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_any_program_leaves_one_list(steps):
    """After appends, updates, clears, flushes and restores in any order, the lists equal plain lists."""
    expected = {"a": [], "b": []}
    with tempfile.TemporaryDirectory() as directory:
        storage = mp.checkpoint_storage(Path(directory).as_uri())
        backend = open_memory(Path(directory) / "work")
        try:
            for number, (step, *given) in enumerate(steps):
                if step == "restore":
                    handle = backend.snapshot(number, storage).result().handle
                    backend.close()
                    restore = [handle] if handle else []
                    backend = open_memory(Path(directory) / "work", restore=restore)
                elif step == "flush":
                    backend.flush()
                    backend.snapshot(number, storage).result()
                    backend.notify_checkpoint_complete(number)
                else:
                    play(backend, expected, number, step, *given)
            for key, elements in expected.items():
                backend.set_current_key(key)
                assert backend.get_partitioned_state(ITEMS).get() == elements
            assert backend.num_state_entries() == sum(map(bool, expected.values()))
        finally:
            backend.close()


def play(backend, expected, number, step, key, sizes=()):
    """Do one step on the lists of a key, in the backend and in the plain lists."""
    backend.set_current_key(key)
    state = backend.get_partitioned_state(ITEMS)
    elements = [bytes([number]) * size for size in sizes]
    if step == "append":
        state.add_all(elements)
        expected[key] = expected[key] + elements
    elif step == "update":
        state.update(elements)
        expected[key] = elements
    elif step == "clear":
        state.clear()
        expected[key] = []
    assert step != "read" or state.get() == expected[key]
