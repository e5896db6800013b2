"""Sorted map state on every backend, compared with dictionaries that are sorted for each read."""

import enum
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple

import attrs
import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.operator.opening import open_batch_backend
from millpond_conformance.call_counts import count_calls
from millpond_conformance.sorted_programs import SortedProgram

NAMES = ["heap", "lmdb", "rocksdb"]
BACKENDS = pytest.mark.parametrize("name", NAMES)
SMALL = {"buffer.max-entries": 5}


def opened(name, folder, *, restore=(), clock=None, key_type=str, **settings):
    """Open a backend in a new directory."""
    return mp.open_keyed_backend(
        name,
        key_type=key_type,
        directory=folder / uuid.uuid4().hex,
        clock=clock or mp.ManualClock(0),
        restore=restore,
        config=mp.Config(settings),
    )


@pytest.fixture
def entries(name, tmp_path):
    """The sorted map of one key of a backend, with the even numbers below 20."""
    with opened(name, tmp_path) as backend:
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", int, str))
        backend.set_current_key("k")
        state.put_all({number: f"{number}" for number in (18, 4, 0, 16, 2, 12, 6, 8, 10, 14)})
        yield backend, state


# ---------------------------------------------------------------- generated programs


@BACKENDS
@pytest.mark.parametrize("limits", [{}, SMALL])
def test_programs(name, limits, tmp_path):
    """Any order of changes, reads, flushes and open iterations gives the results of the reference."""
    for seed in range(25):
        with opened(name, tmp_path, **limits) as backend:
            program = SortedProgram(backend, seed)
            program.run(200)
            program.check()


@BACKENDS
@pytest.mark.parametrize("limits", [{}, SMALL])
def test_programs_with_a_time_to_live(name, limits, tmp_path):
    """Expired entries are in no range; they do not count for its limit, and are not popped."""
    for seed in range(25):
        clock = mp.ManualClock(0)
        with opened(name, tmp_path, clock=clock, **limits) as backend:
            program = SortedProgram(backend, seed, clock, ttl_ms=60)
            program.run(200)
            program.check()


def test_programs_in_batch_execution():
    """The state of one key at a time gives the same results."""
    for seed in range(25):
        with open_batch_backend(key_type=str) as backend:
            program = SortedProgram(backend, seed, keys=("a",))
            program.run(200)
            program.check()


@BACKENDS
@pytest.mark.parametrize("way", ["snapshot", "full", "savepoint"])
def test_programs_go_on_on_another_backend(name, way, tmp_path):
    """A sorted map is restored on any backend, from snapshots of both kinds and from savepoints."""
    storage = mp.checkpoint_storage(f"memory:{uuid.uuid4().hex}")
    chain = {"state.snapshot.strategy": "full"} if way == "full" else {}
    for seed in range(6):
        backend = opened(name, tmp_path, **chain)
        program = SortedProgram(backend, seed)
        for step, other in enumerate(("lmdb", "heap", "rocksdb", name)):
            program.run(60)
            if way == "savepoint":
                handle = backend.savepoint(100 * seed + step, storage).result().handle
            else:
                handle = backend.snapshot(100 * seed + step, storage).result().handle
            backend.close()
            backend = opened(other, tmp_path, restore=[handle], **chain)
            program.adopt(backend)
            program.check()
        backend.close()


@BACKENDS
def test_a_running_snapshot_is_not_disturbed(name, tmp_path):
    """A snapshot contains the entries of its moment, even if they change while it is written."""
    with opened(name, tmp_path) as backend:
        program = SortedProgram(backend, 7)
        for _ in range(10):
            program.run(30)
            backend.flush()
            view = backend.freeze()
            before = {group: [list(rows) for _, rows in view.rows(group)] for group in range(128)}
            program.run(30)
            after = {group: [list(rows) for _, rows in view.rows(group)] for group in range(128)}
            assert [sorted(map(sorted, each)) for each in before.values()] == [
                sorted(map(sorted, each)) for each in after.values()
            ]
            view.close()
        program.check()


# ---------------------------------------------------------------- the order of keys


class Point(NamedTuple):
    x: int
    y: str


@attrs.frozen
class Place:
    town: str
    number: int | None = None


def text_order(values):
    return sorted(values, key=lambda text: [ord(letter) for letter in text])


NUMBERS = [-(2**63), -(2**40), -256, -255, -1, 0, 1, 127, 128, 255, 256, 2**40, 2**63 - 1]
FLOATS = [-math.inf, -1e308, -1.5, -5e-324, 0.0, 5e-324, 1.0, 1.5, 1e308, math.inf]
TEXTS = text_order(
    [
        "",
        "\0",
        "\0\0",
        "\0a",
        "a",
        "a\0",
        "a\0b",
        "a\x01",
        "aa",
        "b",
        "\x7f",
        "é",
        "\ud7ff",
        "\uffff",
        "𐀀",
        "😀",
    ]
)
ORDERED = {
    int: NUMBERS,
    float: FLOATS,
    bool: [False, True],
    str: TEXTS,
    bytes: [
        b"",
        b"\0",
        b"\0\0",
        b"\0\xff",
        b"a",
        b"a\0",
        b"a\0\0",
        b"a\xff",
        b"b",
        b"\xff",
        b"\xff\xff",
    ],
    date: [date.min, date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1), date.max],
    datetime: [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    time: [time.min, time(0, 0, 0, 1), time(12), time.max],
    timedelta: [timedelta(days=-5), timedelta(microseconds=-1), timedelta(0), timedelta(days=9)],
    Decimal: [
        Decimal(x)
        for x in ("-1E3", "-999.5", "-1", "-0.01", "0", "1E-9", "0.5", "2", "10", "11", "1E3")
    ],
    uuid.UUID: [uuid.UUID(int=n) for n in (0, 1, 2**64, 2**127, 2**128 - 1)],
    tuple[str, int]: [("", 5), ("a", -1), ("a", 0), ("a\0", -9), ("a\0b", 1), ("aa", 0), ("b", -3)],
    tuple[int | None, str]: [(None, "b"), (-1, "z"), (0, "a"), (7, "")],
    tuple[tuple[str, int], float]: [(("a", 1), 2.0), (("a", 2), -1.0), (("ab", 0), 0.0)],
    Point: [Point(-1, "b"), Point(0, ""), Point(0, "a"), Point(9, "")],
    Place: [Place("", 3), Place("a"), Place("a", -1), Place("a", 2), Place("b")],
}


@BACKENDS
@pytest.mark.parametrize("declared", ORDERED, ids=str)
@pytest.mark.parametrize("flushed", [False, True, None])
def test_keys_are_in_order(name, declared, flushed, tmp_path):
    """Keys of each type come in their own order, from the store, from the buffer, and from both."""
    keys = ORDERED[declared]
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", declared, int))
        for place, key in enumerate(sorted(keys, key=repr)):
            state.put(key, keys.index(key))
            if flushed or (flushed is None and place % 2):
                backend.flush()
                backend.set_current_key("k")
        assert list(state.items()) == [(key, place) for place, key in enumerate(keys)]
        assert list(state.range(reverse=True)) == list(state.items())[::-1]
        assert state.first() == (keys[0], 0)
        assert state.last() == (keys[-1], len(keys) - 1)
        for place, key in enumerate(keys):
            assert list(state.range(key)) == list(state.items())[place:]
            assert list(state.range(None, key)) == list(state.items())[:place]


@BACKENDS
def test_floats_that_python_does_not_order(name, tmp_path):
    """-0.0 is the key 0.0, and NaN is one key after infinity."""
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", float, int))
        for number, key in enumerate((math.nan, -math.inf, 0.0, math.inf, -0.0, -math.nan)):
            state.put(key, number)
        found = list(state.items())
        assert str(found) == "[(-inf, 1), (0.0, 4), (inf, 3), (nan, 5)]"
        assert [value for _, value in state.range(-0.0, math.nan)] == [4, 3]
        assert [value for _, value in state.range(math.nan)] == [5]


@pytest.mark.parametrize("strategy", [st.text(), st.binary(), st.tuples(st.text(), st.text())])
@BACKENDS
def test_texts_and_bytes_are_in_order(name, strategy, tmp_path_factory):
    """Any strings, bytes and tuples sort as Python sorts them, also beyond LMDB's limit of keys."""
    kinds = {str: str, bytes: bytes, tuple: tuple[str, str]}
    padding = st.sampled_from([0, 480, 489, 490, 491, 495, 505, 511, 600])

    @settings(max_examples=40, deadline=None)
    @given(st.lists(strategy, min_size=1, max_size=12, unique=True), padding)
    def check(keys, size):
        kind = type(keys[0])
        if kind is tuple:
            keys = [("p" * size + one, other) for one, other in keys]
        else:
            keys = [(b"p" if kind is bytes else "p") * size + key for key in keys]
        with opened(name, tmp_path_factory.getbasetemp()) as backend:
            backend.set_current_key("k")
            descriptor = mp.SortedMapStateDescriptor("s", kinds[kind], int)
            state = backend.get_partitioned_state(descriptor)
            for place, key in enumerate(keys):
                state.put(key, place)
                if place == len(keys) // 2:
                    backend.flush()
                    backend.set_current_key("k")
            ordered = sorted(keys)
            assert list(state.keys()) == ordered
            middle = ordered[len(ordered) // 2]
            assert [key for key, _ in state.range(middle)] == ordered[len(ordered) // 2 :]
            backend.flush()
            backend.set_current_key("k")
            assert list(state.keys()) == ordered
            assert [key for key, _ in state.range(reverse=True)] == ordered[::-1]
            assert [key for key, _ in state.range(None, middle, reverse=True)] == ordered[
                : len(ordered) // 2
            ][::-1]

    check()


class Color(enum.Enum):
    RED = 2
    BLUE = 1


@BACKENDS
@pytest.mark.parametrize(
    "declared", [Color, tuple[int, Color], mp.PickleSerializer(), tuple[int, Color | None]]
)
def test_keys_without_an_order_are_refused(name, declared, tmp_path):
    """Enums and the types of custom serializers cannot be keys of a sorted map."""
    with opened(name, tmp_path, **{"serialization.allow-pickle": True}) as backend:
        with pytest.raises(errors.ConfigError, match=r"state 's'.*have no order") as caught:
            backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", declared, int))
        assert repr(declared)[:40] in str(caught.value)
        assert backend.get_partitioned_state(mp.MapStateDescriptor("s", declared, int)) is not None


# ---------------------------------------------------------------- ranges


@BACKENDS
def test_ranges(entries):
    """A range contains its start and not its stop; bounds need not be keys of the map."""
    _, state = entries
    keys = lambda *bounds, **options: [key for key, _ in state.range(*bounds, **options)]  # noqa: E731
    assert keys(4, 10) == [4, 6, 8]
    assert keys(3, 11) == [4, 6, 8, 10]
    assert keys(start=15) == [16, 18]
    assert keys(stop=3, reverse=True) == [2, 0]
    assert keys(4, 10, reverse=True, limit=2) == [8, 6]
    assert keys(10, 4) == keys(4, 4) == keys(limit=0) == keys(100) == []


@BACKENDS
def test_ranges_by_the_first_parts_of_a_tuple(name, tmp_path):
    """Bounds may have fewer parts than the keys; None is no part unless the type says so."""
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        kind = tuple[int, str, int | None]
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", kind, int))
        keys = [(n, t, last) for n in (-1, 0, 1) for t in ("", "a", "b") for last in (None, -1, 1)]
        state.put_all(dict.fromkeys(reversed(keys), 0))
        firsts = {(): 0, (-1,): 0, (0,): 9, (0, "a"): 12, (0, "a", None): 12, (0, "a", 1): 14}
        for bound, place in {**firsts, (1, "aa"): 24, (2,): 27}.items():
            assert [key for key, _ in state.range(bound)] == keys[place:]
            assert [key for key, _ in state.range(None, bound)] == keys[:place]
        assert [key for key, _ in state.range((0, "a"), (0, "b"), reverse=True)] == keys[14:11:-1]
        for wrong in [("a",), (0, 0), (0, "a", 1, 2), 0, "a"]:
            with pytest.raises(errors.StateTypeError, match="state 's'"):
                state.range(wrong)
        with pytest.raises(errors.NullValueError):
            state.range((None,))


@BACKENDS
@pytest.mark.parametrize("flushed", [False, True])
def test_a_decimal_bound_ignores_the_scale(name, flushed, tmp_path):
    """A Decimal at the end of a bound also selects keys of the same value with another scale."""
    one, ten, twenty = keys = [Decimal("1.50"), Decimal("10.00"), Decimal("20.00")]
    below = Decimal("-10.00")
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        plain = backend.get_partitioned_state(mp.SortedMapStateDescriptor("p", Decimal, int))
        pairs = backend.get_partitioned_state(
            mp.SortedMapStateDescriptor("t", tuple[str, Decimal | None], int)
        )
        for key in (below, *keys):
            plain.put(key, 0)
            pairs.put(("a", key), 0)
        pairs.put(("a", None), 0)
        if flushed:
            backend.flush()
        for scale in ("1.5", "1.50", "1.500"):
            assert [key for key, _ in plain.range(Decimal(scale))] == keys
            assert [key for key, _ in plain.range(None, Decimal(scale))] == [below]
        assert [key for key, _ in plain.range(10, 20)] == [ten]
        assert [key for key, _ in plain.range(-10, Decimal("1E1"), reverse=True)] == [one, below]
        assert [key[1] for key, _ in pairs.range(("a", Decimal(10)))] == [ten, twenty]
        assert [key[1] for key, _ in pairs.range(None, ("a", Decimal(-10)))] == [None]
        assert [key[1] for key, _ in pairs.range(("a", None), ("a", Decimal(2)))] == [
            None,
            below,
            one,
        ]
        plain.remove_range(10, 20)
        assert list(plain) == [below, one, twenty]


@BACKENDS
def test_a_part_that_is_none_is_refused_with_the_state(name, tmp_path):
    """The error names the state if a part of a key or of a bound must not be None."""
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        descriptor = mp.SortedMapStateDescriptor("s", tuple[int, str], int)
        state = backend.get_partitioned_state(descriptor)
        for call in (state.range, state.remove_range, lambda key: state.put((*key, "a"), 1)):
            with pytest.raises(errors.NullValueError, match=r"state 's'.*a part of a composite"):
                call((None,))


@BACKENDS
def test_wrong_arguments(entries):
    """Bounds of another type and wrong limits are refused by the call, and nothing changes."""
    _, state = entries
    for call in (
        lambda: state.range("a"),
        lambda: state.range(None, 1.5),
        lambda: state.range(2**63),
        lambda: state.remove_range("a"),
        lambda: state.put(2**63, ""),
        lambda: state.put_all({1: "", -(2**63) - 1: ""}),
    ):
        with pytest.raises(errors.StateTypeError, match="state 's'"):
            call()
    with pytest.raises(errors.ArgumentTypeError):
        state.range(limit="1")
    with pytest.raises(errors.ArgumentValueError):
        state.range(limit=-1)
    with pytest.raises(errors.NullValueError):
        state.put(None, "")
    assert len(state) == 10


@BACKENDS
def test_a_range_belongs_to_the_key_of_its_call(entries):
    """An iteration goes on in its own map when another key becomes current, even if it began then."""
    backend, state = entries
    later, begun = state.range(10), state.range(limit=2, reverse=True)
    assert next(begun) == (18, "18")
    backend.set_current_key("other")
    state.put(11, "other")
    assert [key for key, _ in later] == [10, 12, 14, 16, 18]
    assert list(begun) == [(16, "16")]
    assert list(state.range()) == [(11, "other")]


@BACKENDS
@pytest.mark.parametrize("flushed", [False, True])
def test_an_iteration_sees_entries_that_are_added_ahead(entries, flushed):
    """A queue whose entries add further entries is worked off in order, in one iteration."""
    backend, state = entries
    if flushed:
        backend.flush()
        backend.set_current_key("k")
    seen = []
    for key, _ in state.range(0, 6):
        seen.append(key)
        state.remove(key)
        if key % 2 == 0:
            state.put(key + 1, "")
            state.put(key - 1, "behind")
    assert seen == [0, 1, 2, 3, 4, 5]
    assert [key for key, _ in state.range(None, 6)] == [-1, 1, 3]


@BACKENDS
def test_values_are_copies(name, tmp_path):
    """A value that the caller modifies after a read changes nothing in the state."""
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", int, list[int]))
        state.put(1, [1])
        for read in (
            state.first,
            state.last,
            lambda: next(state.range()),
            lambda: next(state.items()),
        ):
            read()[1].append(2)
            backend.flush()
            backend.set_current_key("k")
        assert state.pop_first() == (1, [1])
        assert state.pop_first() is state.first() is state.last() is None


# ---------------------------------------------------------------- names, restores, TTL


def test_a_name_is_one_kind_of_map(tmp_path):
    """A state in use as a map cannot be requested as a sorted map, nor the other way round."""
    plain, ordered = (
        mp.MapStateDescriptor("s", int, int),
        mp.SortedMapStateDescriptor("s", int, int),
    )
    for one, other in ((plain, ordered), (ordered, plain)):
        with opened("heap", tmp_path) as backend:
            backend.get_partitioned_state(one)
            with pytest.raises(errors.StateConflictError, match="map"):
                backend.get_partitioned_state(other)


@BACKENDS
@pytest.mark.parametrize("other", NAMES)
def test_a_stored_map_becomes_a_sorted_map(name, other, tmp_path):
    """After a restore a map can be requested as a sorted map, and back."""
    storage = mp.checkpoint_storage(f"memory:{uuid.uuid4().hex}")
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.MapStateDescriptor("s", int, str)).put_all(
            {number: str(number) for number in (5, -1, 3, 300)}
        )
        handle = backend.snapshot(1, storage).result().handle
    with opened(other, tmp_path, restore=[handle]) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", int, str))
        assert list(state.keys()) == [-1, 3, 5, 300]
        state.remove_range(4, 100)
        handle = backend.snapshot(2, storage).result().handle
    with opened(name, tmp_path, restore=[handle]) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.MapStateDescriptor("s", int, str))
        assert dict(state.items()) == {-1: "-1", 3: "3", 300: "300"}


@BACKENDS
def test_reads_renew_only_the_entries_that_they_return(name, tmp_path):
    """With ON_READ_AND_WRITE a range renews the entries up to its limit; `first` renews one."""
    clock = mp.ManualClock(0)
    ttl = mp.StateTtlConfig(timedelta(milliseconds=10), mp.UpdateType.ON_READ_AND_WRITE)
    descriptor = mp.SortedMapStateDescriptor("s", int, int).enable_time_to_live(ttl)
    with opened(name, tmp_path, clock=clock) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(descriptor)
        state.put_all(dict.fromkeys(range(8), 0))
        clock.set(6)
        assert [key for key, _ in state.range(2, limit=2)] == [2, 3]
        assert state.first() == (0, 0)
        assert state.last() == (7, 0)
        clock.set(12)
        assert list(state.keys()) == [0, 2, 3, 7]


@BACKENDS
def test_a_restore_with_another_time_to_live(name, tmp_path):
    """A TTL can be switched on and off between two runs."""
    clock, storage = mp.ManualClock(0), mp.checkpoint_storage(f"memory:{uuid.uuid4().hex}")
    plain = mp.SortedMapStateDescriptor("s", int, int)
    ttl = mp.StateTtlConfig(timedelta(milliseconds=10))
    timed = mp.SortedMapStateDescriptor("s", int, int).enable_time_to_live(ttl)
    handle = None
    for run, descriptor in enumerate((plain, timed, plain)):
        clock.set(5 * run)
        with opened(name, tmp_path, clock=clock, restore=[handle] if handle else []) as backend:
            backend.set_current_key("k")
            state = backend.get_partitioned_state(descriptor)
            state.put(-run, run)
            handle = backend.snapshot(run + 1, storage).result().handle
            assert list(state.items()) == [(-number, number) for number in range(run, -1, -1)]


# ---------------------------------------------------------------- functions


class Latest(mp.KeyedProcessFunction):
    """Yield the sum of the last 10 ms, and remove older rows."""

    def open(self, context):
        self.rows = context.get_sorted_map_state(
            mp.SortedMapStateDescriptor("rows", tuple[int, int], int)
        )

    def process_element(self, row, context):
        self.rows.put((row.ms, row.n), row.n)
        self.rows.remove_range(None, (row.ms - 9,))
        yield context.current_key, sum(n for _, n in self.rows.range((row.ms - 9,), (row.ms + 1,)))


ROWS = [{"k": "ab"[n % 2], "ms": n * 3, "n": n} for n in range(40)]


@BACKENDS
def test_local_runs(name):
    """A function with a sorted map runs locally."""
    found = mp.local.run(Latest(), ROWS, key="k", backend=name)
    expected = [
        (
            row["k"],
            sum(
                r["n"] for r in ROWS if r["k"] == row["k"] and row["ms"] - 9 <= r["ms"] <= row["ms"]
            ),
        )
        for row in ROWS
    ]
    assert sorted(found) == sorted(expected)


@BACKENDS
def test_the_harness_rescales(name):
    """A sorted map survives a snapshot and a rescale in the harness."""
    with mp.testing.KeyedOperatorHarness(Latest(), key="k", backend=name) as harness:
        for row in ROWS[:20]:
            harness.process(row)
        handle = harness.snapshot()
    with mp.testing.KeyedOperatorHarness(
        Latest(), key="k", backend=name, restore=[handle]
    ) as harness:
        harness.process(ROWS[20])
        assert harness.output == [("a", 20 + 18)]


class Failing(mp.KeyedProcessFunction):
    """Change a sorted map in every way, yield its content, and fail for every third row."""

    def open(self, context):
        self.rows = context.get_sorted_map_state(mp.SortedMapStateDescriptor("rows", int, int))

    def process_element(self, row, context):
        self.rows.put_all({row.ms + n: row.n for n in (1, 5, 20)})
        for key, _ in self.rows.range(row.ms, reverse=True, limit=2):
            self.rows.remove(key - 9)
        self.rows.remove_range(row.ms - 20, row.ms - 10)
        self.rows.pop_first()
        if row.n % 3 == 2:
            raise ValueError(row.n)
        yield context.current_key, list(self.rows.items())


@BACKENDS
def test_failed_rows_leave_no_trace(name):
    """Changes of a row that becomes a dead letter are undone, in ranges too."""
    sound = [row for row in ROWS if row["n"] % 3 != 2]
    expected = mp.local.run(Failing(), sound, key="k", backend=name)
    out = mp.local.run(Failing(), ROWS, key="k", backend=name, on_error="side_output")
    assert [row for row in out if isinstance(row, tuple)] == expected


def test_the_context_checks_the_descriptor():
    """Maps and sorted maps are requested by their own methods."""

    class Wrong(Latest):
        def open(self, context):
            context.get_map_state(mp.SortedMapStateDescriptor("s", int, int))

    with pytest.raises(errors.UserFunctionError, match="expected MapStateDescriptor"):
        mp.local.run(Wrong(), ROWS, key="k")


@BACKENDS
@pytest.mark.parametrize("wanted", ["latency", "size"])
def test_metrics(name, wanted, tmp_path):
    """Calls and steps of ranges are counted and sampled like those of other iterations."""
    tracked = {f"state.{wanted}-track.enabled": True, f"state.{wanted}-track.sample-interval": 1}
    with opened(name, tmp_path, **tracked) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", int, int))
        assert state.first() is None
        state.put_all({1: 1, 2: 2})
        assert list(state.range(0, reverse=True, limit=5)) == [(2, 2), (1, 1)]
        assert state.last() == (2, 2)
        state.remove_range(2)
        assert state.pop_first() == (1, 1)
        found, sampled = backend.metrics.calls(), set(backend.metrics.histograms())
    counted = {"first": 1, "last": 1, "pop_first": 1, "remove_range": 1, "range": 1}
    assert {f"s.{name}": calls for name, calls in counted.items()}.items() <= found.items()
    assert found["s.range_next"] == 3
    if wanted == "latency":
        assert {
            f"s.{each}_ns" for each in ("first", "pop_first", "range_init", "range_next")
        } <= sampled
    else:
        names = [
            f"s.{each}_{what}"
            for each in ("first", "pop_first", "range_next", "last")
            for what in ("bytes", "key_bytes")
        ]
        assert set(names) - {"s.first_bytes", "s.first_key_bytes"} <= sampled


# ---------------------------------------------------------------- costs


ACTIONS = {
    "range": lambda state, n: list(state.range(n // 2, n // 2 + 10)),
    "range back": lambda state, n: list(state.range(n // 2, n // 2 + 10, reverse=True)),
    "first": lambda state, n: state.first(),
    "last": lambda state, n: state.last(),
    "remove a range": lambda state, n: state.remove_range(n // 2, n // 2 + 10),
    "put and range": lambda state, n: (state.put(n // 2, 0), list(state.range(n // 2, limit=3))),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("stored", ["nothing", "half", "all"])
@BACKENDS
def test_a_range_does_not_cost_more_in_a_larger_map(name, stored, action, tmp_path):
    """Ten entries of a map of 8,000 take less than twice the calls of ten of a map of 500."""

    def cost(size):
        with opened(name, tmp_path) as backend:
            backend.set_current_key("k")
            state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", int, int))
            state.put_all(dict.fromkeys(range(0, size, 2), 0))
            if stored == "half":
                backend.flush()
                backend.set_current_key("k")
            state.put_all(dict.fromkeys(range(1, size, 2), 0))
            if stored == "all":
                backend.flush()
                backend.set_current_key("k")
            state.first()  # sorts the buffered keys
            return count_calls(lambda: ACTIONS[action](state, size))

    assert cost(8000) < 2 * cost(500) + 25


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("end", ["first", "last", "middle"])
@BACKENDS
def test_taking_entries_one_by_one_costs_the_same_each_time(name, stored, end, tmp_path):
    """A queue of twice the length takes about twice the calls, without a flush in between."""

    def cost(size):
        with opened(name, tmp_path) as backend:
            backend.set_current_key("k")
            state = backend.get_partitioned_state(mp.SortedMapStateDescriptor("s", int, int))
            state.put_all(dict.fromkeys(range(-5, size + 5), 0))
            if stored:
                backend.flush()
                backend.set_current_key("k")

            def drain():
                for _ in range(size):
                    if end == "first":
                        state.pop_first()
                    elif end == "last":
                        state.remove(state.last()[0])
                    else:
                        state.remove(next(state.range(0))[0])

            return count_calls(drain)

    assert cost(800) < 3 * cost(400)
