"""The write buffer: reads return the newest value, and a flush writes each change once."""

import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors

from core.tests.memory_store import STORES, open_memory

NAMES = ["a", "b", "c"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
        st.tuples(st.sampled_from(["clear", "flush", "read"])),
    ),
    max_size=12,
)


@pytest.fixture
def entries(tmp_path):
    """A backend with a map and a value of one key, two entries of which are stored."""
    with open_memory(tmp_path) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int))
        state.put("stored", 1)
        state.put("both", 2)
        backend.flush()
        yield backend, state


def test_buffer_and_store_are_one_map(entries):
    """Added, changed and removed entries are visible immediately, together with stored ones, each once."""
    _, state = entries
    state.put("both", 20)
    state.put("new", 3)
    assert sorted(state.items()) == [("both", 20), ("new", 3), ("stored", 1)]
    state.remove("stored")
    assert sorted(state.items()) == [("both", 20), ("new", 3)]
    assert state.get("stored") is None
    state.remove("both")
    state.remove("new")
    assert state.is_empty()


def test_an_iteration_survives_a_flush_between_its_steps(entries):
    """If a flush happens during an iteration, entries that it stores are returned once, removed ones not."""
    backend, state = entries
    state.put("new", 3)
    walk = iter(state.items())
    first = next(walk)
    for name in ("stored", "both", "new"):
        if name != first[0]:
            state.put(name, 100)
    backend.flush()
    backend.set_current_key("k")
    rest = dict(walk)
    assert rest == dict.fromkeys({"stored", "both", "new"} - {first[0]}, 100)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_map_is_a_dictionary(tmp_path_factory, steps):
    """After any order of changes, reads and flushes, the content is that of a dictionary."""
    with open_memory(tmp_path_factory.getbasetemp()) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int))
        model = {}
        for what, *given_ in steps:
            if what == "put":
                state.put(*given_)
                model[given_[0]] = given_[1]
            elif what == "remove":
                state.remove(*given_)
                model.pop(*given_, None)
            elif what == "clear":
                state.clear()
                model.clear()
            elif what == "flush":
                backend.flush()
            assert dict(state.items()) == model
            assert [state.get(name) for name in NAMES] == [model.get(name) for name in NAMES]
        backend.flush()
        assert len(STORES[-1].rows["m"]) == len(model)


def test_a_flush_reports_each_changed_entry_once(entries):
    """The listeners get sorted stored keys with bytes, and None for removed entries."""
    backend, state = entries
    told = []
    backend.add_change_listener(lambda batch: told.append({k: list(v) for k, v in batch.items()}))
    for number in range(5):
        state.put("new", number)
    state.remove("stored")
    backend.flush()
    (batch,) = told
    rows = batch["m"]
    assert [row for row, _ in rows] == sorted(row for row, _ in rows)
    assert sorted(value is None for _, value in rows) == [False, True]
    backend.flush()
    assert [batch for batch in told[1:] if any(batch.values())] == []


def test_what_was_not_touched_is_read_once(entries):
    """A second read of an entry, or of a missing one, does not access the store."""
    backend, state = entries
    backend.set_current_key("k")
    for _ in range(3):
        assert (state.get("stored"), state.get("nothing")) == (1, None)
    assert backend.counters()["store_reads"] == 2


def test_the_limit_in_bytes_counts_what_small_entries_take(tmp_path):
    """A buffer of 30 kB holds at most a hundred entries, however small their values are."""
    with open_memory(tmp_path, key_type=int, settings={"buffer.max-bytes": 30_000}) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        for key in range(101):
            backend.set_current_key(key)
            state.update(key)
        assert len(STORES[-1].rows["v"]) >= 100


def counted_rows(monkeypatch):
    """Return a list that counts the rows which the newest store reads in scans."""
    read, scan = [], STORES[-1].scan

    def counted(*bounds):
        for row in scan(*bounds):
            read.append(row)
            yield row

    monkeypatch.setattr(STORES[-1], "scan", counted)
    return read


@pytest.mark.parametrize("most", [200_000, 500], ids=["one flush", "early flushes"])
def test_clearing_a_large_map_reads_its_rows_once(tmp_path, monkeypatch, most):
    """Clearing a large map reads each row at most twice, even with flushes in between."""
    count = 20_000
    with open_memory(tmp_path, settings={"buffer.max-entries": most}) as backend:
        state = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        for key in "ak":
            backend.set_current_key(key)
            state.put_all(dict.fromkeys(range(count if key == "k" else 1), 1))
        backend.flush()
        read = counted_rows(monkeypatch)
        state.put(count, 2)
        state.clear()
        assert count <= len(read) <= 2 * count
        assert state.is_empty()
        backend.flush()
        assert state.is_empty()
        backend.set_current_key("a")
        assert dict(state.items()) == {0: 1}


def test_a_key_that_comes_twice_takes_room_once(tmp_path, monkeypatch):
    """Bulk writes of numbers under the same key do not fill the buffer."""
    writes = []
    with open_memory(tmp_path, settings={"buffer.max-entries": 100}) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        store = STORES[-1]
        write = store.write
        monkeypatch.setattr(store, "write", lambda batch: (writes.append(batch), write(batch)))
        state.update_many(["a"] * 99, range(99))
        state.update_many(["b"] * 99, range(99))
        assert not writes
        assert state.get_many(["a", "b"]).to_pylist() == [98, 98]


def test_bulk_puts_give_room_back(tmp_path, monkeypatch):
    """When values are replaced, the buffer's size shrinks by the old ones, once per value."""
    large, small, writes = bytes(200 << 10), b"", []
    with open_memory(tmp_path, settings={"buffer.max-bytes": 1 << 20}) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", bytes))
        store = STORES[-1]
        write = store.write
        monkeypatch.setattr(store, "write", lambda batch: (writes.append(batch), write(batch)))
        for value in (large, small, large, small):
            state.update_many(["a", "b"], [value, small])
        state.update_many(["a"], [large])
        state.update_many(["a", "a"], [small, small])
        state.update_many(["b"], [large])
        assert not writes
        state.update_many(["c"], [large])
        assert len(writes) == 1
        assert state.get_many(["a", "b", "c"]).to_pylist() == [small, large, large]


def test_taking_entries_out_one_by_one_passes_what_is_gone_once(tmp_path, monkeypatch):
    """A map used as a queue reads a bounded number of rows per entry, however many were removed before."""
    count = 2_000
    with open_memory(tmp_path) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        state.put_all({key: key for key in range(count)})
        backend.flush()
        read = counted_rows(monkeypatch)
        taken = []
        while not state.is_empty():
            first = next(iter(state.keys()))
            taken.append(first)
            state.remove(first)
            if first == count // 2 and taken.count(first) == 1:
                state.put(first, first)  # its row was already scanned
        assert sorted(taken) == sorted([*range(count), count // 2])
        assert len(read) <= 40 * count


def test_an_iteration_of_a_buffered_map_survives_what_comes_between_its_steps(tmp_path):
    """If entries are removed, overwritten and flushed during an iteration, each remaining one is returned once."""
    with open_memory(tmp_path) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        state.put_all(dict.fromkeys(range(10), 1))
        walk = iter(state.items())
        first = next(walk)[0]
        for key in range(0, 10, 3):
            state.remove(key)
        state.put(first, 2)  # whether removed or not, it was already returned
        state.put(5, 2)
        backend.flush()
        backend.set_current_key("k")
        state.remove(7)
        rest = list(walk)
        expected = {key: 1 for key in range(10) if key % 3 and key != 7} | {5: 2}
        expected.pop(first, None)
        assert sorted(rest) == sorted(expected.items())


def test_reads_that_fail_take_room_once(tmp_path, monkeypatch):
    """Repeated reads of an undecodable entry do not fill the buffer."""
    writes = []
    with open_memory(tmp_path, settings={"buffer.max-entries": 100}) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", float))
        backend.set_current_key("damaged")
        state.update(1.0)
        backend.flush()
        store = STORES[-1]
        store.rows["v"] = dict.fromkeys(store.rows["v"], b"short")
        monkeypatch.setattr(store, "write", writes.append)
        for _ in range(200):
            with pytest.raises(errors.CorruptSnapshotError):
                state.value()
        assert not writes
