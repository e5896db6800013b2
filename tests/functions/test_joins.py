"""Ready-made joins, compared with plain Python and with pandas, on every backend."""

import random
from datetime import timedelta
from typing import NamedTuple

import attrs
import millpond as mp
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors

NAMES = ["heap", "lmdb", "rocksdb"]
BACKENDS = pytest.mark.parametrize("backend", NAMES)
LEFT = "k string, ms bigint, id bigint"
RIGHT = "k string, ms bigint, name string"
HOWS = ("inner", "left", "right", "full")
END = mp.MAX_TIMESTAMP


def left(key, ms, number):
    return {"k": key, "ms": ms, "id": number}


def right(key, ms, number):
    return {"k": key, "ms": ms, "name": f"r{number}"}


# ---------------------------------------------------------------- references


class IntervalReference:
    """An interval join by lists that are searched from the beginning for each row."""

    def __init__(self, lower, upper, how):
        self.reach = {"left": upper, "right": -lower}
        self.lower, self.upper = lower, upper
        self.outer = {"left": how in ("left", "full"), "right": how in ("right", "full")}
        self.rows, self.matched, self.watermark = {"left": [], "right": []}, set(), mp.MIN_TIMESTAMP
        self.late = {"left": [], "right": []}

    def end(self, side, row):
        """Return the time at which a row can find no partner any more."""
        return min(row[1] + self.reach[side], END)

    def pairs(self):
        """Return all pairs of rows that match."""
        return [
            (mine, theirs)
            for mine in self.rows["left"]
            for theirs in self.rows["right"]
            if mine[0] == theirs[0] and mine[1] + self.lower <= theirs[1] <= mine[1] + self.upper
        ]

    def row(self, side, row):
        """Return the output for a row."""
        if row[1] <= self.watermark:
            self.late[side].append(row)
            return []
        before = set(self.pairs())
        self.rows[side].append(row)
        new = set(self.pairs()) - before
        self.matched |= {each for pair in new for each in pair}
        return [*new, *self.unmatched()]

    def unmatched(self):
        """Return the rows without a partner whose time is over, once each."""
        found = []
        for side, rows in self.rows.items():
            for row in rows:
                if self.end(side, row) <= self.watermark and row not in self.matched:
                    self.matched.add(row)
                    if self.outer[side]:
                        found.append((row, None) if side == "left" else (None, row))
        return found

    def advance(self, watermark):
        """Return the output for a watermark."""
        self.watermark = max(self.watermark, watermark)
        return self.unmatched()

    def kept(self):
        """Return the number of entries in state: the useful rows, and the timer of each key."""
        keys = [
            row[0]
            for side, rows in self.rows.items()
            for row in rows
            if self.end(side, row) > self.watermark
        ]
        return len(keys) + len(set(keys))


class AsOfReference:
    """An as-of join by lists."""

    def __init__(self, how, tolerance):
        self.keeps, self.tolerance = how == "left", tolerance
        self.waiting, self.versions, self.watermark = [], [], mp.MIN_TIMESTAMP
        self.late = {"left": [], "right": []}

    def row(self, side, row):
        if side == "right":
            self.versions.append(row)
        elif row[1] <= self.watermark:
            self.late[side].append(row)
        else:
            self.waiting.append(row)
        return []

    def advance(self, watermark):
        self.watermark = max(self.watermark, watermark)
        due = [row for row in self.waiting if row[1] <= self.watermark]
        self.waiting = [row for row in self.waiting if row[1] > self.watermark]
        found = []
        for row in due:
            older = [each for each in self.versions if each[0] == row[0] and each[1] <= row[1]]
            best = max(enumerate(older), key=lambda pair: (pair[1][1], pair[0]), default=(0, None))[
                1
            ]
            if (
                best is not None
                and self.tolerance is not None
                and best[1] < row[1] - self.tolerance
            ):
                best = None
            if best is not None or self.keeps:
                found.append((row, best))
        return found


# ---------------------------------------------------------------- generated programs

TIMES = st.integers(0, 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("ab"), TIMES),
        st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("ab"), TIMES),
        st.tuples(st.just("watermark"), st.just(""), TIMES),
        st.tuples(st.just("restore"), st.sampled_from(NAMES), st.just(0)),
    ),
    max_size=40,
)


def order(pairs):
    """Return pairs of rows as plain tuples, sorted."""
    plain = (tuple(tuple(row) if isinstance(row, tuple) else row for row in pair) for pair in pairs)
    return sorted(plain, key=repr)


def play(make, reference, steps, backend, *, kept=None):
    """Run steps in a harness, and compare the output of each step with a reference.

    ``kept`` returns the number of entries that the state must have after each step.
    """
    config = mp.Config({"buffer.max-entries": 3})
    steps = [*steps, ("watermark", "", END)]
    handle, late, number = None, {"left": [], "right": []}, 0
    while steps:
        with mp.testing.KeyedOperatorHarness(
            make(), key="k", backend=backend, config=config, restore=handle
        ) as harness:
            harness.advance_watermark(reference.watermark)
            assert harness.output == []
            while steps:
                (kind, key, value), number = steps.pop(0), number + 1
                if kind == "restore":
                    backend = key
                    break
                before = len(harness.output)
                if kind == "watermark":
                    harness.advance_watermark(value)
                    wanted = reference.advance(value)
                elif kind == "left":
                    harness.process1(left(key, value, number), value)
                    wanted = reference.row("left", (key, value, number))
                else:
                    harness.process2(right(key, value, number), value)
                    wanted = reference.row("right", (key, value, f"r{number}"))
                assert order(harness.output[before:]) == order(wanted), (kind, key, value)
                if kept is not None:
                    assert harness._backend.num_state_entries() == kept()
            late["left"] += harness.output.side_output(mp.LATE_LEFT)
            late["right"] += harness.output.side_output(mp.LATE_RIGHT)
            entries = harness._backend.num_state_entries()
            handle = harness.snapshot()
    assert late == reference.late
    return entries


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(
    steps=STEPS,
    bounds=st.tuples(st.integers(-15, 15), st.integers(-15, 15)).map(sorted),
    how=st.sampled_from(HOWS),
)
def test_interval_joins(backend, steps, bounds, how):
    """Any order of rows, watermarks and restores gives the pairs, late rows and state of lists."""
    lower, upper = bounds
    reference = IntervalReference(lower, upper, how)

    def make():
        return mp.IntervalJoin(LEFT, RIGHT, lower=lower, upper=upper, how=how)

    assert play(make, reference, steps, backend, kept=reference.kept) == 0


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(
    steps=STEPS,
    how=st.sampled_from(["inner", "left"]),
    tolerance=st.none() | st.integers(0, 15),
)
def test_as_of_joins(backend, steps, how, tolerance):
    """Each left row gets the latest right row that has arrived, in any order of rows."""
    reference = AsOfReference(how, tolerance)
    entries = play(
        lambda: mp.AsOfJoin(LEFT, RIGHT, how=how, tolerance=tolerance), reference, steps, backend
    )
    keys = {row[0] for row in reference.versions}
    assert entries == (0 if tolerance is not None else len(keys))


# ---------------------------------------------------------------- pandas


def frames(seed, count=300):
    """Return left and right rows as frames in order of time; several rows have the same time."""
    rng = random.Random(seed)
    times = [sorted(rng.randrange(count) for _ in range(count)) for _ in range(2)]
    keys = [[rng.choice("abcdefg") for _ in range(count)] for _ in range(2)]
    lefts = pd.DataFrame({"k": keys[0], "ms": times[0], "id": range(count)})
    rights = pd.DataFrame({"k": keys[1], "ms": times[1], "name": [f"r{n}" for n in range(count)]})
    return lefts, rights


def plain(rows):
    """Return the pairs of ids and names of a frame, with None for NaN."""
    pairs = rows[["id", "name"]].astype(object).where(rows[["id", "name"]].notna(), None)
    return order((row[0], row[1]) for row in pairs.to_numpy().tolist())


@pytest.mark.parametrize("tolerance", [None, 0, 9])
@BACKENDS
def test_as_of_joins_of_pandas(backend, tolerance):
    """A local run gives the result of ``merge_asof``, with rows out of order within the delay."""
    lefts, rights = frames(1)
    found = mp.local.run(
        mp.AsOfJoin(LEFT, RIGHT, how="left", tolerance=tolerance),
        lefts.sample(frac=1, random_state=1).sort_values("ms", key=lambda ms: ms // 20, kind="stable"),
        key="k", event_time="ms", second=rights, second_event_time="ms", watermark_delay=20,
        backend=backend,
    )  # fmt: skip
    merged = pd.merge_asof(lefts, rights, on="ms", by="k", tolerance=tolerance)
    got = order((mine.id, None if other is None else other.name) for mine, other in found)
    assert got == plain(merged)
    assert found.side_outputs == {}


@pytest.mark.parametrize("how", HOWS)
def test_interval_joins_of_pandas(how):
    """A local run gives the result of pandas' merge by key, filtered by time."""
    lefts, rights = frames(2)
    found = mp.local.run(
        mp.IntervalJoin(LEFT, RIGHT, lower=-7, upper=timedelta(milliseconds=3), how=how),
        lefts, key="k", event_time="ms", second=rights, second_event_time="ms", watermark_delay=0,
    )  # fmt: skip
    both = lefts.merge(rights, on="k", suffixes=("", "_right"))
    both = both[(both.ms_right - both.ms).between(-7, 3)]
    wanted = [(int(number), name) for number, name in both[["id", "name"]].to_numpy().tolist()]
    if how in ("left", "full"):
        wanted += [(number, None) for number in lefts.id.tolist() if number not in set(both.id)]
    if how in ("right", "full"):
        wanted += [(None, name) for name in rights.name if name not in set(both.name)]
    got = [
        (None if mine is None else mine.id, None if other is None else other.name)
        for mine, other in found
    ]
    assert order(got) == order(wanted)


# ---------------------------------------------------------------- lookup joins


@BACKENDS
def test_a_lookup_join(backend):
    """A row gets the table's row at its arrival; a row with a lower event time replaces nothing."""
    function = mp.LookupJoin(RIGHT, how="left")
    with mp.testing.KeyedOperatorHarness(function, key="k", backend=backend) as harness:
        harness.process1(left("a", 1, 1))
        harness.process2(right("a", 5, 1), 5)
        harness.process1(left("a", 2, 2))
        harness.process2(right("a", 4, 2), 4)
        harness.process1(left("a", 3, 3))
        harness.process2(right("a", 5, 3), 5)
        harness.process1(left("a", 4, 4))
        handle = harness.snapshot()
        found = [(mine.id, other and other.name) for mine, other in harness.output]
    assert found == [(1, None), (2, "r1"), (3, "r1"), (4, "r3")]
    with mp.testing.KeyedOperatorHarness(
        mp.LookupJoin(RIGHT), key="k", backend="heap", restore=handle
    ) as harness:
        harness.process1(left("a", 5, 5))
        harness.process1(left("b", 5, 6))
        assert [(mine.id, other.name) for mine, other in harness.output] == [(5, "r3")]


def test_the_table_comes_first():
    """In a local run the table's rows come first, at equal event times or without event times."""
    table = [right("a", 3, 1), right("a", 7, 2)]
    rows = [left("a", ms, ms) for ms in (2, 3, 6, 7)]
    join = mp.LookupJoin(RIGHT)
    found = mp.local.run(join, rows, key="k", event_time="ms", second=table, second_event_time="ms")
    assert [(mine.id, other.name) for mine, other in found] == [(3, "r1"), (6, "r1"), (7, "r2")]
    found = mp.local.run(join, rows, key="k", second=table)
    assert [other.name for _, other in found] == ["r2"] * 4


def test_keys_of_several_fields():
    """The fields of a key may have other names in the second input; their number is the same."""
    table = [{"shop": "s", "who": "a", "name": "x"}]
    rows = [{"at": "s", "k": "a"}, {"at": "s", "k": "b"}]
    join = mp.LookupJoin("shop string, who string, name string", how="left")
    names = {"key": ["at", "k"], "second_key": ["shop", "who"]}
    found = mp.local.run(join, rows, second=table, **names)
    with mp.testing.KeyedOperatorHarness(join, key_type=tuple[str, str], **names) as harness:
        harness.process2(table[0])
        for row in rows:
            harness.process1(row)
    assert found == harness.output == [(("s", "a"), ("s", "a", "x")), (("s", "b"), None)]
    with pytest.raises(errors.ArgumentValueError, match="second_key.*as many names as key has: 2"):
        mp.local.run(join, rows, key=["at", "k"], second=table, second_key=["who"])


def test_a_table_with_a_time_to_live():
    """A table's row is not used after its time to live."""
    ttl = mp.StateTtlConfig(timedelta(milliseconds=10))
    with mp.testing.KeyedOperatorHarness(mp.LookupJoin(RIGHT, ttl=ttl), key="k") as harness:
        harness.process2(right("a", 0, 1))
        for now in (9, 10):
            harness.advance_processing_time(now)
            harness.process1(left("a", 0, now))
        assert [mine.id for mine, _ in harness.output] == [9]


# ---------------------------------------------------------------- types, limits and errors


@attrs.frozen
class Order:
    """A left row of a class, whose instances are mutable."""

    k: str
    ms: int
    id: int
    tags: list[str] = attrs.field(factory=list)


class Visit(NamedTuple):
    """A right row of a class."""

    k: str
    ms: int
    name: str


@BACKENDS
@pytest.mark.parametrize("how", HOWS)
def test_rows_of_classes(backend, how):
    """Rows are instances of the declared classes, both from state and directly."""
    join = mp.IntervalJoin(Order, Visit, lower=-5, upper=5, how=how)
    with mp.testing.KeyedOperatorHarness(join, key="k", backend=backend) as harness:
        harness.process1({"k": "a", "ms": 1, "id": 1, "tags": []}, 1)
        harness.process2(Visit("a", 2, "x"), 2)
        harness.process1(Order("a", 3, 2, ["t"]), 3)
        assert harness.output == [
            (Order("a", 1, 1), Visit("a", 2, "x")),
            (Order("a", 3, 2, ["t"]), Visit("a", 2, "x")),
        ]
        assert {type(row) for pair in harness.output for row in pair} == {Order, Visit}


@BACKENDS
def test_many_rows_of_the_same_time(backend):
    """Rows of the same time are all kept, at a cost that does not grow with their number."""
    join = mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=0, how="left")
    with mp.testing.KeyedOperatorHarness(join, key="k", backend=backend) as harness:
        for number in range(200):
            harness.process1(left("a", 5, number), 5)
        harness.process2(right("a", 5, 0), 5)
        assert [mine.id for mine, _ in harness.output] == list(range(200))
        harness.advance_watermark(5)
        assert len(harness.output) == 200


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("bound", [-(1 << 63), -5, 0, 5, (1 << 63) - 1])
def test_extreme_times(how, bound):
    """Times and bounds up to 64 bits give the pairs of plain Python."""
    times = (mp.MIN_TIMESTAMP + 1, -1, 0, 3, mp.MAX_TIMESTAMP - 1, mp.MAX_TIMESTAMP)
    for lower, upper in ((bound, bound), (bound, mp.MAX_TIMESTAMP), (mp.MIN_TIMESTAMP, bound)):
        reference = IntervalReference(lower, upper, how)
        steps = [(side, "a", ms) for ms in times for side in ("left", "right")]

        def make(lower=lower, upper=upper):
            return mp.IntervalJoin(LEFT, RIGHT, lower=lower, upper=upper, how=how)

        play(make, reference, steps, "heap")


def test_late_rows_are_counted():
    """A late row goes to its side output, unchanged, and is counted."""
    join = mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=5, how="full")
    with mp.testing.KeyedOperatorHarness(join, key="k") as harness:
        harness.advance_watermark(10)
        harness.process1(left("a", 10, 1), 10)
        harness.process2(right("a", 9, 1), 9)
        assert harness.output == []
        assert harness.output.side_output(mp.LATE_LEFT) == [("a", 10, 1)]
        assert harness.output.side_output(mp.LATE_RIGHT) == [("a", 9, "r1")]
        assert harness.metrics["numLateRecords"] == 2


@pytest.mark.parametrize(
    "join", [mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=0), mp.AsOfJoin(LEFT, RIGHT)]
)
def test_rows_without_event_time(join):
    """A join by event time refuses rows without one; null_event_times can drop them."""
    with (
        pytest.raises(errors.UserFunctionError, match="has no event time"),
        mp.testing.KeyedOperatorHarness(join, key="k") as harness,
    ):
        harness.process1(left("a", 0, 0))
    with mp.testing.KeyedOperatorHarness(join, key="k", null_event_times="drop") as harness:
        harness.process1(left("a", 0, 0))
        harness.process2(right("a", 0, 0))
        harness.advance_watermark(END)
        assert harness.output == []


def test_rescaled_joins():
    """The subtasks of another parallelism continue with the kept rows and the timers."""
    keys = [f"key-{number}" for number in range(20)]

    def make():
        return mp.IntervalJoin(LEFT, RIGHT, lower=-5, upper=5, how="full")

    def run(parallelism, restore, rows):
        found, handles = [], []
        for subtask in range(parallelism):
            with mp.testing.KeyedOperatorHarness(
                make(), key="k", restore=restore, subtask=subtask, parallelism=parallelism
            ) as harness:
                groups = mp.key_group_range(128, parallelism, subtask)
                for process, row in rows:
                    if groups.start <= mp.assign_to_key_group(row["k"], 128) <= groups.end:
                        getattr(harness, process)(row, row["ms"])
                handles.append(harness.snapshot())
                if restore:
                    harness.advance_watermark(END)
                found += harness.output
        return found, handles

    found, handles = run(2, None, [("process1", left(key, 10, 1)) for key in keys])
    assert found == []
    found, _ = run(3, handles, [("process2", right(key, 12, 2)) for key in keys[:15]])
    assert order(found) == order(
        [((key, 10, 1), (key, 12, "r2") if at < 15 else None) for at, key in enumerate(keys)]
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mp.IntervalJoin(LEFT, RIGHT, lower=5, upper=4), "lower.*greater than upper"),
        (lambda: mp.IntervalJoin(LEFT, RIGHT, lower=1.5, upper=4), "lower.*timedelta or ms"),
        (
            lambda: mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=timedelta(microseconds=1)),
            "IntervalJoin.*upper.*milliseconds|upper.*milliseconds",
        ),
        (lambda: mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=0, how="outer"), "how.*inner, left"),
        (lambda: mp.IntervalJoin(LEFT, "name nothing", lower=0, upper=0), "nothing"),
        (lambda: mp.IntervalJoin(object, RIGHT, lower=0, upper=0, how="full"), "object"),
        (lambda: mp.AsOfJoin(LEFT, RIGHT, how="full"), "how.*inner, left"),
        (lambda: mp.AsOfJoin(LEFT, RIGHT, tolerance=-1), "tolerance.*negative"),
        (lambda: mp.LookupJoin(RIGHT, how="right"), "how.*inner, left"),
        (lambda: mp.LookupJoin(RIGHT, how=["inner"]), "how.*inner, left"),
    ],
)
def test_wrong_arguments(make, message):
    """A wrong argument is refused when the join is made."""
    with pytest.raises(errors.ConfigError, match=message):
        make()


def test_another_kind_of_join_is_refused():
    """The kept rows of an inner join do not show whether they had a partner."""
    with mp.testing.KeyedOperatorHarness(
        mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=5), key="k"
    ) as harness:
        harness.process1(left("a", 1, 1), 1)
        handle = harness.snapshot()
    with (
        pytest.raises(errors.UserFunctionError, match="StateMigrationError: State .left."),
        mp.testing.KeyedOperatorHarness(
            mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=5, how="left"), key="k", restore=handle
        ),
    ):
        pass


@pytest.mark.parametrize("bound", [2, 9])
def test_changed_bounds(bound):
    """After a start with other bounds, all kept rows are put out and removed in time."""
    handle = None
    with mp.testing.KeyedOperatorHarness(
        mp.IntervalJoin(LEFT, RIGHT, lower=-5, upper=5, how="full"), key="k"
    ) as harness:
        for ms in (1, 4, 8):
            harness.process1(left("a", ms, ms), ms)
        handle = harness.snapshot()
    changed = mp.IntervalJoin(LEFT, RIGHT, lower=-bound, upper=bound, how="full")
    with mp.testing.KeyedOperatorHarness(changed, key="k", restore=handle) as harness:
        harness.advance_watermark(8)
        assert [mine.id for mine, _ in harness.output] == ([1, 4] if bound == 2 else [])
        harness.advance_watermark(8 + bound)
        assert [mine.id for mine, _ in harness.output] == [1, 4, 8]
        assert harness._backend.num_state_entries() == 0


@BACKENDS
def test_rows_gain_a_column(backend):
    """A nullable column may be added to the rows while they are kept."""
    with mp.testing.KeyedOperatorHarness(
        mp.IntervalJoin(LEFT, RIGHT, lower=0, upper=5, how="left"), key="k", backend=backend
    ) as harness:
        harness.process1(left("a", 1, 1), 1)
        handle = harness.snapshot()
    wider = mp.IntervalJoin(f"{LEFT}, note string", RIGHT, lower=0, upper=5, how="left")
    with mp.testing.KeyedOperatorHarness(
        wider, key="k", backend=backend, restore=handle
    ) as harness:
        harness.process2(right("a", 2, 2), 2)
        assert harness.output == [(("a", 1, 1, None), ("a", 2, "r2"))]
