"""Announced keys: their entries are read together, and nothing else changes."""

import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.backend.bytestore.write_buffer import ReadingHabit
from millpond.types.key_codecs import SerializedKeyCodec

from core.tests.memory_store import STORES, open_memory

TOTAL = mp.ValueStateDescriptor("total", int)
KEYS = list(range(40))
PARTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(KEYS), min_size=1, max_size=30),
        st.sampled_from(["add", "put", "clear", "read", "nothing"]),
        st.booleans(),
    ),
    max_size=12,
)


def groups_of(keys):
    """Return the key groups of keys."""
    return [mp.assign_to_key_group(key, 128) for key in keys]


def expected(backend, keys):
    """Announce keys, and yield each with its group, like the rows of a frame."""
    backend.current.prefetch(keys, groups_of(keys))
    return list(zip(keys, groups_of(keys), strict=True))


def read_all(backend, state, keys):
    """Announce keys and read a state for each; return the number of reads before and after."""
    rows = expected(backend, keys)
    before = backend.counters()["store_reads"]
    for key, group in rows:
        backend.current.select(key, group)
        state.value()
    return before, backend.counters()["store_reads"]


@pytest.fixture
def totals(tmp_path):
    """A backend with a number for each key, and the state."""
    with open_memory(tmp_path, key_type=int) as backend:
        state = backend.get_partitioned_state(TOTAL)
        for key in KEYS:
            backend.set_current_key(key)
            state.update(key * 10)
        backend.flush()
        yield backend, state


def test_a_function_that_reads_most_keys_finds_them_read(totals):
    """If the function reads most entries, they are read in advance from the second announcement on."""
    backend, state = totals
    assert read_all(backend, state, KEYS[:10]) == (0, 10)
    assert read_all(backend, state, KEYS[10:20]) == (20, 20)
    assert read_all(backend, state, [*KEYS[15:25], 20]) == (25, 25)


def test_nothing_is_read_for_a_function_that_does_not_ask(totals):
    """If few entries were read before, announced keys cost no reads."""
    backend, state = totals
    for key, group in expected(backend, KEYS[:20]):
        backend.current.select(key, group)
        state.value() if key % 2 else state.update(1)
    for key, group in expected(backend, KEYS[20:]):
        backend.current.select(key, group)
        state.update(1)
    expected(backend, KEYS[20:])
    assert backend.counters()["store_reads"] == 10


def test_now_and_then_it_is_seen_whether_a_function_still_reads(totals):
    """If entries that were read in advance are not used, reading in advance stops after sixteen announcements."""
    backend, state = totals
    read_all(backend, state, KEYS)
    backend.flush()
    reads = []
    for _ in range(40):
        expected(backend, KEYS)
        backend.flush()
        reads.append(backend.counters()["store_reads"])
    assert reads[15] == reads[-1] <= 17 * len(KEYS)


@settings(max_examples=80, deadline=None)
@given(PARTS, st.sampled_from([3, 1000]))
def test_announced_or_not_states_are_the_same(tmp_path_factory, parts, room):
    """With and without announcements, any operations give the results of a dictionary."""
    folder = tmp_path_factory.getbasetemp()
    with open_memory(folder, key_type=int, settings={"buffer.max-entries": room}) as backend:
        state = backend.get_partitioned_state(TOTAL)
        model = {}
        for keys, what, flushed in parts:
            for key, group in expected(backend, keys):
                backend.current.select(key, group)
                if what == "add":
                    assert state.value() == model.get(key)
                    model[key] = (model.get(key) or 0) + 1
                    state.update(model[key])
                elif what == "put":
                    model[key] = key
                    state.update(key)
                elif what == "clear":
                    model.pop(key, None)
                    state.clear()
                elif what == "read":
                    assert state.value() == model.get(key)
            if flushed:
                backend.flush()
        backend.flush()
        assert len(STORES[-1].rows["total"]) == len(model)
        assert {key: state.at(key).value() for key in model} == model


def test_what_cannot_be_read_is_told_where_it_is_asked_for(tmp_path):
    """A damaged entry that no call reads causes no error; reading it names its row."""
    with open_memory(tmp_path, key_type=int) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("word", str))
        read_all(backend, state, KEYS)
        for key in KEYS:
            backend.set_current_key(key)
            state.update("a")
        backend.flush()
        rows = STORES[-1].rows["word"]
        rows.update(dict.fromkeys(rows, b"\xff"))
        (first, group), *_ = expected(backend, KEYS)
        backend.current.select(first, group)
        with pytest.raises(errors.MillpondError, match="word"):
            state.value()


def test_no_more_is_read_ahead_than_the_buffer_has_room_for(tmp_path):
    """Large values are read in advance only as far as the buffer has space; nothing is flushed."""
    with open_memory(tmp_path, key_type=int, settings={"buffer.max-bytes": 100_000}) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("word", str))
        for key in KEYS:
            backend.set_current_key(key)
            state.update("x" * 9_000)
        backend.flush("v1")
        assert read_all(backend, state, KEYS[:10]) == (0, 10)
        backend.flush("v1")
        expected(backend, KEYS)
        assert 10 < backend.counters()["store_reads"] <= 21
        assert backend.version == "v1"


def test_states_with_namespaces_are_read_as_asked_for(totals):
    """For states with namespaces nothing is read in advance, because the namespaces are unknown."""
    backend, _ = totals
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("of-window", int), "w", str)
    read_all(backend, state, KEYS[:10])
    assert read_all(backend, state, KEYS[10:20]) == (10, 20)


def test_a_single_large_value_is_forgotten():
    """A single large value makes the slices smaller; they grow again without such values."""
    habit = ReadingHabit()
    habit.saw(1 << 21)
    habit.reads_ahead(10)
    assert habit.largest == 1 << 21
    for _ in range(21):
        habit.reads_ahead(10)
    assert habit.largest == 1


def test_foreign_and_closed_are_told_of_as_before(tmp_path):
    """An announcement raises no error: the row of a foreign key does, and a closed backend."""
    mine = mp.key_group_range(128, 2, 0)
    with open_memory(tmp_path, key_type=int, key_group_range=mine) as backend:
        foreign = next(key for key in KEYS if groups_of([key])[0] not in mine)
        ((key, group),) = expected(backend, [foreign])
        with pytest.raises(errors.KeyGroupRangeError):
            backend.current.select(key, group)
    expected(backend, [foreign])
    with pytest.raises(errors.BackendClosedError):
        backend.current.select(key, group)


def test_a_key_of_another_group_is_another_key(tmp_path):
    """An announcement applies only to the given group; rows of another group are read separately."""
    with open_memory(tmp_path, key_type=int) as backend:
        state = backend.get_partitioned_state(TOTAL)
        backend.current.prefetch([5], [0])
        backend.current.select(5, 1)
        state.update(7)
        backend.current.select(5, 0)
        assert state.value() is None


def test_keys_that_cannot_be_hashed_are_chosen_as_ever(tmp_path):
    """Keys that Python cannot hash are selected normally; announcing them does nothing."""
    serializer = mp.ValueStateDescriptor("key", list[int]).value_serializer()
    with open_memory(tmp_path, key_type=SerializedKeyCodec(serializer)) as backend:
        state = backend.get_partitioned_state(TOTAL)
        key = [1]
        backend.current.prefetch([key], [0])
        for number in (1, 2, 1):
            key[:] = [number]
            backend.set_current_key(key)
            state.update((state.value() or 0) + 1)
        assert state.value() == 2
