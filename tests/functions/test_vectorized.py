"""Vectorized functions give the results of single rows on all backends, and refuse wrong input."""

import math
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors

TTL = mp.StateTtlConfig(timedelta(milliseconds=20))
BACKENDS = ["heap", "lmdb", "rocksdb"]


def descriptors(ttl):
    """Return the descriptors of both functions."""
    made = {
        "total": mp.ReducingStateDescriptor("total", mp.functions.sum, int),
        "least": mp.ReducingStateDescriptor("least", mp.functions.min, float),
        "last": mp.ValueStateDescriptor("last", str),
        "seen": mp.ListStateDescriptor("seen", int),
    }
    for each in made.values() if ttl else ():
        each.enable_time_to_live(TTL)
    return made


class Both:
    """Common part of both functions: states in a namespace, and a timer after each row."""

    def __init__(self, ttl):
        self.ttl = ttl

    def open(self, context):
        self.states = {
            name: context.get_namespaced_state(each, "space")
            for name, each in descriptors(self.ttl).items()
        }

    def on_timer(self, timestamp, context):
        yield "timer", context.current_key, timestamp, self.states["total"].get()


class ByRow(Both, mp.KeyedProcessFunction):
    """The function for single rows."""

    def process_element(self, row, context):
        states = self.states
        states["total"].add(row.n)
        states["least"].add(row.x)
        if row.text is None:
            states["last"].clear()
        else:
            states["last"].update(row.text)
        states["seen"].add(row.n)
        context.timer_service().register_event_time_timer(context.timestamp + 5)


class ByFrame(Both, mp.VectorizedProcessFunction):
    """The function for frames."""

    def process_batch(self, rows, context):
        keys, states = context.keys, self.states
        states["total"].add_many(keys, rows["n"], context.positions)
        states["least"].add_many(keys, rows["x"].to_numpy(), context.positions)
        states["last"].update_many(keys, rows["text"].take(pa.array(context.offsets[1:] - 1)))
        states["seen"].add_many(keys, rows["n"], context.positions)
        for position, moment in zip(context.positions, context.timestamps, strict=True):
            timers = context.timer_service(keys[position].as_py())
            timers.register_event_time_timer(moment.as_py() + 5)


def shown(harness, keys):
    """Return the whole content of the states."""
    found = {}
    for name, each in descriptors(harness._function.ttl).items():
        state = harness._backend.get_partitioned_state(each, "space")
        for key in keys:
            at = state.at(key)
            found[name, key] = at.value() if name == "last" else at.get()
    return found


def frames(seed):
    """Return seeded frames of rows, each with its processing time."""
    draw = random.Random(seed)
    for number in range(6):
        rows = [
            {
                "k": f"k{draw.randrange(8)}",
                "n": draw.randrange(-99, 99),
                "x": draw.choice([0.5, -2.0, 7.25, float("nan")]),
                "text": draw.choice(["a", "ü", "", None]),
            }
            for _ in range(draw.randrange(1, 30))
        ]
        rows[0]["text"] = "x"  # Arrow infers the type from the first frame
        yield number * 8, rows, [draw.randrange(100) for _ in rows]


def program(backend, seed, ttl):
    """Run both functions over the same frames; each continues from the other's snapshot."""
    kinds = [ByRow, ByFrame]
    handles = [None, None]
    told = []
    for moment, rows, times in frames(seed):
        seen = []
        for at, kind in enumerate(kinds):
            with mp.testing.KeyedOperatorHarness(
                kind(ttl), key="k", backend=backend, restore=handles[at], clock_ms=moment
            ) as harness:
                if kind is ByFrame:
                    harness.process_batch(rows, times)
                else:
                    for row, time in zip(rows, times, strict=True):
                        harness.process(row, time)
                harness.advance_watermark(50 + moment)
                handles[at] = harness.snapshot()
                keys = [f"k{number}" for number in range(8)]
                seen.append((shown(harness, keys), sorted(harness.output)))
        assert repr(seen[0]) == repr(seen[1]), seed
        told += seen[0][1]
        kinds.reverse()
        handles.reverse()
    return told


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_frame_does_what_its_rows_do(backend, ttl):
    """States and timers are the same after frames as after single rows, across each other's snapshots."""
    assert program(backend, 7, ttl)


@pytest.mark.soak
@pytest.mark.parametrize("backend", BACKENDS)
def test_many_frames_do_what_their_rows_do(backend):
    """In two hundred programs, states and timers are the same after frames as after single rows."""
    for seed in range(200):
        program(backend, seed, ttl=bool(seed % 2))


class Given(mp.VectorizedProcessFunction):
    """Function that calls a function of the test."""

    def __init__(self, call):
        self.call = call

    def open(self, context):
        self.total = context.get_state(mp.ValueStateDescriptor("total", int))
        self.sum = context.get_reducing_state(
            mp.ReducingStateDescriptor("sum", mp.functions.sum, int)
        )

    def process_batch(self, rows, context):
        return self.call(self, rows, context)


ROWS = [{"k": "b", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 3}]


def given(call):
    """Return a function's output for the three rows."""
    return mp.local.run(Given(call), ROWS, key="k")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda f, r, c: f.total.update_many(["c"], [1]), "key str 'c' is none of this frame's"),
        (lambda f, r, c: f.total.at("c"), "key str 'c' is none of this frame's"),
        (lambda f, r, c: c.timer_service("c"), "key str 'c' is none of this frame's"),
        (lambda f, r, c: f.total.update_many(c.keys, [1]), "state 'total': 1 values for 2 keys"),
        (lambda f, r, c: f.total.update_many(c.keys, ["x", 1]), "expected int, got str 'x'"),
        (lambda f, r, c: f.total.update_many(c.keys, np.ones((2, 1))), "of one dimension"),
        (lambda f, r, c: f.total.update_many({"a", "b"}, [1, 2]), "keys: expected a column"),
        (lambda f, r, c: f.total.update_many(c.keys, {1, 2}), "values: expected a column"),
        (lambda f, r, c: f.sum.add_many(c.keys, [1], [2]), "positions are indices of the 2 keys"),
        (lambda f, r, c: f.sum.add_many(c.keys, [None, 1]), "an element must not be None"),
        (lambda f, r, c: f.sum.add_many(c.keys, None), "the column of elements must not be None"),
        (lambda f, r, c: f.total.value(), "no current key"),
        (lambda f, r, c: "row", "instead of tables"),
        (lambda f, r, c: [r, 5], "it returned int 5"),
    ],
)
def test_what_is_wrong_is_told(call, told):
    """Errors name operator, method, state and cure, and nothing has changed."""
    with pytest.raises(errors.UserFunctionError) as failed:
        given(call)
    assert told in str(failed.value)
    assert "Operator 'local', subtask 0" in str(failed.value)
    assert "Given.process_batch failed" in str(failed.value)


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
@pytest.mark.parametrize("how", ["break", "error", "next"])
def test_a_loop_over_groups_that_is_left_leaves_no_key(backend, how):
    """After a loop over `groups()` that is left early, there is no current key."""

    class Leaves(mp.VectorizedProcessFunction):
        def open(self, context):
            self.state = context.get_state(mp.ValueStateDescriptor("state", int))

        def process_batch(self, rows, context):
            groups = context.groups()
            if how == "next":
                next(groups)
                del groups
            elif how == "break":
                for _ in groups:
                    break
                del groups
            else:
                with suppress(ZeroDivisionError):
                    for _ in context.groups():
                        raise ZeroDivisionError
            with pytest.raises(errors.NoCurrentKeyError):
                self.state.update(1)
            return pa.table({"state": self.state.get_many(context.keys)})

    rows = [{"k": key} for key in "aab"]
    found = mp.local.run(Leaves(), rows, key="k", backend=backend)
    assert [row.state for row in found] == [None, None]


def test_what_a_frame_has():
    """Keys, positions and offsets agree; the rows of a key are adjacent and keep their order."""
    seen = []

    def look(function, rows, context):
        assert rows["n"].to_pylist() == [2, 1, 3] or rows["n"].to_pylist() == [1, 3, 2]
        of_rows = [context.keys[at].as_py() for at in context.positions]
        assert of_rows == rows["k"].to_pylist()
        groups = {key: mine["n"].to_pylist() for key, mine in context.groups()}
        assert groups == {"a": [2], "b": [1, 3]}
        ends = context.offsets.tolist()
        assert [end - start for start, end in pairwise(ends)] == [
            len(groups[key]) for key in context.keys.to_pylist()
        ]
        seen.append(context.timestamps)
        return [rows, rows.to_pandas(), pa.Table.from_batches([rows])]

    found = given(look)
    assert sorted(map(tuple, found)) == sorted(3 * [("a", 2), ("b", 1), ("b", 3)])
    assert seen == [None]


def test_frames_of_pandas():
    """A function may request DataFrames; integers with nulls remain integers."""

    class Frames(mp.VectorizedProcessFunction):
        frames = "pandas"

        def process_batch(self, rows, context):
            assert isinstance(rows, pd.DataFrame)
            return rows

    rows = [{"k": "a", "n": (1 << 60) + 1}, {"k": "a", "n": None}]
    assert mp.local.run(Frames(), rows, key="k") == [("a", (1 << 60) + 1), ("a", None)]


@pytest.mark.parametrize("nan", [float("nan"), Decimal("NaN")])
@pytest.mark.parametrize("function", [mp.functions.min, mp.functions.max])
def test_the_least_and_the_greatest_beside_nan(function, nan):
    """If a value is NaN, `min` and `max` return NaN, for floats and Decimals, by rows and arrays."""
    kind = type(nan)
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ReducingStateDescriptor("x", function, kind))
        state.add_many(["a", "b", "c"], [nan, kind(1), kind(1), nan, kind(1)], [0, 0, 1, 1, 2])
        for key in "abc":
            state.at(key).add(kind(2))
        assert [math.isnan(state.at(key).get()) for key in "abc"] == [True, True, False]


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        (mp.functions.sum, np.array([1 << 62, 1 << 62, 1]), [1 << 63, 1]),
        (mp.functions.min, np.array([3, 1, 2], np.uint8), [1, 2]),
        (mp.functions.max, np.array([3, 1, 2], np.int8), [3, 2]),
        (mp.functions.last, pa.array([3, 1, 2]), [1, 2]),
        (mp.functions.count, None, [2, 1]),
    ],
)
def test_known_functions(function, values, expected):
    """Each known function reduces arrays exactly, also beyond 64 bits, for any positions."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ReducingStateDescriptor("x", function, int))
        state.add_many(["a", "b"], values, np.array([0, 0, 1]))
        assert [state.at(key).get() for key in "ab"] == expected
        other = backend.get_partitioned_state(mp.ReducingStateDescriptor("y", function, int))
        shuffled = None if values is None else values.take([2, 0, 1])
        other.add_many(["a", "b"], shuffled, np.array([1, 0, 0]))
        assert [other.at(key).get() for key in "ab"] == expected


def test_columns_of_states():
    """Values are returned as arrays of their type with nulls; a value that does not fit is refused."""
    with mp.open_keyed_backend("heap", key_type=int, clock=mp.ManualClock(0)) as backend:
        numbers = backend.get_partitioned_state(mp.ValueStateDescriptor("numbers", int))
        numbers.update_many(np.array([1, 2]), pd.Series([5, 6]))
        assert numbers.get_many(pa.array([2, 3, 1])).equals(pa.array([6, None, 5]))
        numbers.at(1).update(1 << 64)
        with pytest.raises(errors.BulkCallError, match=r"read such values by at\(key\)"):
            numbers.get_many([1, 2])
        lists = backend.get_partitioned_state(mp.ValueStateDescriptor("lists", list[int]))
        lists.update_many([1], [[1, 2]])
        assert lists.get_many([1, 2]) == [[1, 2], None]
        moments = backend.get_partitioned_state(mp.ValueStateDescriptor("t", datetime))
        moments.update_many([1, 2], np.array(["2024-01-01", "NaT"], "M8[ns]"))
        assert moments.get_many([1, 2]).to_pylist() == [pd.Timestamp("2024-01-01"), None]
    with pytest.raises(errors.BackendClosedError):
        numbers.get_many([1])


def test_an_operators_state_has_no_keys():
    """State without keys refuses the bulk calls with that reason."""
    state = mp.open_operator_backend().get_list_state(mp.ListStateDescriptor("x", int))
    with pytest.raises(errors.BulkCallError, match="has no keys"):
        state.get_many(["a"])


class Echo(mp.VectorizedProcessFunction):
    """Function that returns each frame."""

    def process_batch(self, rows, context):
        return rows


@pytest.mark.parametrize("values", [[1, 2], np.array([1, 2])])
def test_the_last_element_of_a_key_that_comes_twice(values):
    """For a repeated key, the last element in the given order is used."""
    descriptor = mp.ReducingStateDescriptor("r", mp.functions.last, int)
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(descriptor)
        state.add_many(["a", "a", "b"], values, np.array([1, 0]))
        assert state.get_many(["a", "b"]).to_pylist() == [2, None]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1, None], dtype="int64[pyarrow]"),
        pd.Series([1, None], dtype=object),
    ],
)
def test_a_null_of_pandas_clears(values):
    """Nulls of pandas clear a value, also those of nullable types."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        state.update_many(["a", "b"], [7, 8])
        state.update_many(["a", "b"], values)
        assert state.get_many(["a", "b"]).to_pylist() == [1, None]


def echoed(first, then):
    """Return two values of a column after each has been processed in a frame of its own."""
    rows = [{"k": "a", "v": first}, {"k": "a", "v": then}]
    return [row.v for row in mp.local.run(Echo(), rows, key="k", frame_rows=1)]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (None, 5),
        ([], [1]),
        (1.5, 2),
        (1, 2.5),
        (1, 2.0),
        ([1.5], [2]),
        ([1], [2.5]),
        ("a", None),
        ({"x": 1, "y": None}, {"y": "a", "x": 2}),
        ({"x": 1.5}, {"x": 2}),
        ([{"x": []}], [{"x": [1]}]),
        (Decimal("1.5"), Decimal("12.25")),
        (Decimal("12.25"), Decimal(4)),
        ([Decimal("1e-3")], [Decimal("9" * 38)]),
    ],
)
def test_all_frames_have_the_columns_type(first, then):
    """The type of a column covers all frames: nulls fit any type, integers fit floats, decimals widen."""
    assert echoed(first, then) == [first, then]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (1, "2"),
        ("1", 2),
        (1.5, 2**60 + 1),
        ({"x": 1}, {"x": 1, "y": 2}),
        ({"x": 1, "y": 2}, {"y": 3}),
        ({"x": 1}, {"y": 2}),
        ([{"x": 1}], [{"x": 1, "y": 2}]),
        ({"x": 1}, {"x": 2.0, "y": 0}),
        ({"x": 1, "y": 0}, {"x": 2.0}),
        ({"x": 1, "y": None}, {"x": "a", "y": None}),
        ({}, {"x": 1}),
        (Decimal(1), Decimal("2e-76")),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)),
    ],
)
def test_no_frame_loses_a_value(first, then):
    """Values without a common type are refused, even if they are in different frames."""
    with pytest.raises(errors.ArgumentTypeError, match="columns of one type each"):
        echoed(first, then)


def test_rows_of_other_columns_and_frames_of_another_sort_are_refused():
    """A frame with other columns, and a misspelt kind of frame, are refused."""
    for rows in ([{"k": "a", "n": 1}, {"k": "a", "m": 1}], [{"k": "a"}, {"k": "a", "n": 1}]):
        with pytest.raises(errors.ArgumentTypeError, match="rows: expected rows of the columns k"):
            mp.local.run(Echo(), rows, key="k", frame_rows=1 if "n" in rows[0] else 9)
    with pytest.raises(
        errors.ArgumentValueError, match=r"Odd\.frames: expected 'arrow' or 'pandas'"
    ):
        type("Odd", (Echo,), {"frames": "polars"})
