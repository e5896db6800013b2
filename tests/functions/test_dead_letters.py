"""Dead letters: a row that fails goes to a side output, and leaves no other trace."""

import gc
from contextlib import closing
from datetime import timedelta

import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors, windows

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
KEYS = ("a", "b")


class PoisonError(Exception):
    """The error of a row that is to fail."""


def _total(a, b):
    return a + b


class Longest(mp.AggregateFunction):
    """Aggregate of the elements in a list, which grows in place."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator):
        return tuple(accumulator)

    def merge(self, a, b):
        a.extend(b)
        return a


def ttl(descriptor):
    """Give a descriptor a time to live that reads renew."""
    kept = mp.StateTtlConfig(timedelta(milliseconds=50), mp.UpdateType.ON_READ_AND_WRITE)
    return descriptor.enable_time_to_live(kept)


class Program(mp.KeyedProcessFunction):
    """Runs the operations of each row, yields the key's whole state, and then fails if asked to."""

    def open(self, context):
        self.value = context.get_state(mp.ValueStateDescriptor("value", int))
        self.mutable = context.get_state(mp.ValueStateDescriptor("mutable", list[int]))
        self.list = context.get_list_state(mp.ListStateDescriptor("list", str))
        self.map = context.get_map_state(mp.MapStateDescriptor("map", int, int | None))
        self.sum = context.get_reducing_state(mp.ReducingStateDescriptor("sum", _total, int))
        longest = mp.AggregatingStateDescriptor("longest", Longest(), list[int])
        self.longest = context.get_aggregating_state(longest)
        self.fold = context.get_folding_state(mp.FoldingStateDescriptor("fold", 0, _total, int))
        self.short_value = context.get_state(ttl(mp.ValueStateDescriptor("short", int)))
        self.short_list = context.get_list_state(ttl(mp.ListStateDescriptor("shorts", int)))
        self.short_map = context.get_map_state(ttl(mp.MapStateDescriptor("short map", int, int)))
        spaced = mp.ListStateDescriptor("spaced", int)
        self.spaced = context.get_namespaced_state(spaced, 0, int)

    def process_element(self, row, context):
        timers = context.timer_service()
        for name, *arguments in row.operations:
            self.run(name, arguments, timers)
        yield context.current_key, self.state()
        if row.fails:
            raise PoisonError(row.operations)

    def run(self, name, arguments, timers):
        """Run an operation; ``walk`` removes the odd entries of a map during an iteration."""
        if name == "walk":
            for key in self.short_map:
                if key % 2:
                    self.short_map.remove(key)
        elif name == "space":
            self.spaced.set_current_namespace(arguments[0])
            self.spaced.add(arguments[1])
        elif name == "merge":
            self.spaced.merge_namespaces(arguments[0], arguments[1])
        elif name == "at":
            self.value.at(arguments[0]).update(arguments[1])
        elif name == "many":
            self.value.update_many(*arguments)
        elif name == "add many":
            self.list.add_many(*arguments)
        elif hasattr(timers, name):
            getattr(timers, name)(*arguments)
        else:
            state, method = name.split(".")
            getattr(getattr(self, state), method)(*arguments)

    def state(self):
        """Return everything that the current key has in state."""
        spaces = []
        for namespace in range(3):
            self.spaced.set_current_namespace(namespace)
            spaces.append(self.spaced.get())
        single = (self.value, self.mutable, self.short_value)
        many = (self.list, self.sum, self.longest, self.fold, self.short_list)
        return (
            [each.value() for each in single],
            [each.get() for each in many],
            sorted(self.map.items()),
            sorted(self.short_map.items()),
            spaces,
        )

    def on_timer(self, timestamp, context):
        self.value.update(-timestamp)
        yield context.current_key, timestamp, context.time_domain, self.state()


NUMBERS = st.integers(0, 4)
TIMES = st.integers(0, 30)


def operation(name, *given):
    """Return a strategy of operations."""
    return st.tuples(st.just(name), *given)


OPERATIONS = st.one_of(
    operation("value.update", NUMBERS | st.none()),
    operation("value.clear"),
    operation("mutable.update", st.lists(NUMBERS, max_size=3)),
    operation("list.add", st.text("xy", max_size=9)),
    operation("list.add_all", st.lists(st.text("z", max_size=5), max_size=3)),
    operation("list.update", st.lists(st.text("u", max_size=2), max_size=2)),
    operation("list.clear"),
    operation("map.put", NUMBERS, NUMBERS | st.none()),
    operation("map.put_all", st.dictionaries(NUMBERS, NUMBERS, max_size=3)),
    operation("map.remove", NUMBERS),
    operation("map.clear"),
    operation("sum.add", NUMBERS),
    operation("sum.clear"),
    operation("longest.add", NUMBERS),
    operation("fold.add", NUMBERS),
    operation("short_value.update", NUMBERS),
    operation("short_list.add", NUMBERS),
    operation("short_list.update", st.lists(NUMBERS, max_size=2)),
    operation("short_map.put", NUMBERS, NUMBERS),
    operation("short_map.clear"),
    operation("walk"),
    operation("space", st.integers(0, 2), NUMBERS),
    operation("merge", st.integers(0, 2), st.lists(st.integers(0, 2), max_size=3)),
    operation("at", st.sampled_from(KEYS), NUMBERS),
    operation("many", st.just(list(KEYS)), st.tuples(NUMBERS, NUMBERS | st.none()).map(list)),
    operation("add many", st.just(list(KEYS)), st.just(["m", "n"])),
    operation("register_event_time_timer", TIMES),
    operation("delete_event_time_timer", TIMES),
    operation("register_processing_time_timer", TIMES),
    operation("delete_processing_time_timer", TIMES),
)
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(KEYS),
        "operations": st.lists(OPERATIONS, max_size=6),
        "fails": st.booleans(),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), ROWS),
        st.tuples(st.just("watermark"), TIMES),
        st.tuples(st.just("clock"), st.integers(0, 120)),
        st.tuples(st.just("snapshot"), st.sampled_from(["heap", "rocksdb", "lmdb"])),
    ),
    max_size=14,
)


def outcome(steps, backend, strategy, on_error, *, drop):
    """Return the output and the dead letters of steps.

    With ``drop``, the rows that would fail are left out.
    """
    config = mp.Config({"buffer.max-entries": 3, "state.snapshot.strategy": strategy})
    found, letters, handle, clock, watermark = [], [], None, 0, -1
    dumps = [("row", {"k": key, "operations": [], "fails": False}) for key in KEYS]
    steps = [*steps, ("snapshot", backend), *dumps, ("watermark", 40), ("clock", 200), *dumps]
    while steps:
        with mp.testing.KeyedOperatorHarness(
            Program(), key="k", backend=backend, config=config, restore=handle, clock_ms=clock,
            on_error=on_error,
        ) as harness:  # fmt: skip
            while steps:
                kind, value = steps.pop(0)
                if kind == "row" and not (drop and value["fails"]):
                    harness.process(value)
                elif kind == "watermark":
                    watermark = max(watermark, value)
                    harness.advance_watermark(watermark)
                elif kind == "clock":
                    clock = max(clock, value)
                    harness.advance_processing_time(clock)
                elif kind == "snapshot":
                    handle = harness.snapshot()
                    if value != backend:
                        backend = value
                        break
            found += harness.output
            letters += harness.output.side_output(mp.DEAD_LETTERS)
    return found, letters


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(steps=STEPS, strategy=st.sampled_from(["full", "changelog"]))
def test_a_failed_row_leaves_no_trace(backend, steps, strategy):
    """Output and state are those of a run without the failed rows, on every backend."""
    expected, none = outcome(steps, backend, strategy, "fail", drop=True)
    found, letters = outcome(steps, backend, strategy, "side_output", drop=False)
    assert found == expected
    assert none == []
    failed = [value for kind, value in steps if kind == "row" and value["fails"]]
    assert [letter.row.operations for letter in letters] == [row["operations"] for row in failed]


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_rows_that_do_not_fail(steps):
    """Without a failure, the output is the same as without dead letters."""
    good = [step for step in steps if step[0] != "row" or not step[1]["fails"]]
    assert outcome(good, "lmdb", "changelog", "side_output", drop=False) == outcome(
        good, "lmdb", "changelog", "fail", drop=False
    )


# ---------------------------------------------------------------- the letters


class Checked(mp.KeyedProcessFunction):
    """Function that counts the rows of a key, and refuses negative numbers."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        yield context.current_key, self.count.value()
        if row.n < 0:
            raise ValueError(f"{row.n} is negative")


def rows(*numbers, key="ann"):
    """Return rows of one key."""
    return [{"k": key, "n": number} for number in numbers]


def test_a_letter():
    """A dead letter has the operator, the key, the method, the error, the user's frames, the row."""
    out = mp.local.run(Checked(), rows(1, -7, 2), key="k", on_error="side_output")
    assert out == [("ann", 1), ("ann", 2)]
    (letter,) = out.side_output(mp.DEAD_LETTERS)
    assert letter[:4] == ("local", "ann", "Checked.process_element", "ValueError: -7 is negative")
    first, *frames, last = letter.traceback.splitlines()
    assert first == "Traceback (most recent call last):"
    assert len(frames) == 2
    assert __file__ in frames[0]
    assert last == "ValueError: -7 is negative"
    assert letter.row == ("ann", -7)
    assert letter.second_row is None


def test_the_count_of_letters():
    """The metric numDeadLetters counts the letters; without the option there is no such metric."""
    with mp.testing.KeyedOperatorHarness(Checked(), key="k", on_error="side_output") as harness:
        for row in rows(1, -1, -2):
            harness.process(row)
        assert harness.metrics["numDeadLetters"] == 2
    with mp.testing.KeyedOperatorHarness(Checked(), key="k") as harness:
        assert "numDeadLetters" not in harness.metrics


def test_failing_is_the_default():
    """Without the option a row that fails fails the job."""
    with pytest.raises(errors.UserFunctionError, match="-7 is negative"):
        mp.local.run(Checked(), rows(-7), key="k")


def test_texts_are_limited_and_printable():
    """Huge messages and keys are shortened, and lone surrogates escaped, so that any sink takes them."""

    class Loud(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            raise ValueError("\ud800" + "x" * 10**6)

    huge = "k" * 10**6
    out = mp.local.run(Loud(), rows(1, key=huge), key="k", on_error="side_output")
    (letter,) = out.side_output(mp.DEAD_LETTERS)
    assert letter.error.startswith("ValueError: \\ud800xxx")
    assert max(len(letter.error), len(letter.key), len(letter.traceback)) < 20_000
    assert letter.row.k == huge


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_errors_that_no_row_causes(error):
    """An interrupt, an exit and a lack of memory fail the job."""

    class Ends(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            raise error

    with pytest.raises((KeyboardInterrupt, errors.UserFunctionError)):
        mp.local.run(Ends(), rows(1), key="k", on_error="side_output")


@BACKENDS
@pytest.mark.parametrize("method", ["get", "put"])
def test_errors_of_the_store_fail_the_job(backend, method, monkeypatch):
    """A store that cannot be read or written is not the row's fault, whatever it raises."""
    with mp.testing.KeyedOperatorHarness(
        Checked(), key="k", backend=backend, on_error="side_output"
    ) as harness:
        harness.process({"k": "a", "n": 1})

        def broken(*_):
            raise ValueError("disk full")

        monkeypatch.setattr(type(harness._backend.states.tables["count"]), method, broken)
        with pytest.raises(errors.UserFunctionError, match="disk full"):
            harness.process({"k": "b", "n": 1})
        monkeypatch.undo()
        assert harness.output.side_output(mp.DEAD_LETTERS) == []


def test_errors_of_timers_fail_the_job():
    """A timer has no row that could be put aside."""

    class Timed(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            context.timer_service().register_event_time_timer(1)

        def on_timer(self, timestamp, context):
            raise ValueError("late")

    with pytest.raises(errors.UserFunctionError, match="on_timer failed"):
        mp.local.run(Timed(), rows(1), key="k", on_error="side_output")


def test_a_state_that_a_plugin_stores_itself(monkeypatch):
    """A state that does not work on the backend's table cannot be rolled back, and is refused."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.keep_journal()
        monkeypatch.setattr(type(backend.parameters.registry), "make_state", lambda *_: object())
        with pytest.raises(errors.UnsupportedCapabilityError, match="state count"):
            backend.get_partitioned_state(mp.ValueStateDescriptor("count", int))


# ---------------------------------------------------------------- other kinds of functions


class Enriched(mp.KeyedCoProcessFunction):
    """Function of two inputs, each of which refuses negative numbers."""

    def open(self, context):
        self.seen = context.get_list_state(mp.ListStateDescriptor("seen", int))

    def process_element1(self, row, context):
        self.seen.add(row.n)
        yield context.current_key, self.seen.get()
        assert row.n >= 0

    def process_element2(self, row, context):
        self.seen.add(row.m)
        assert row.m >= 0


def test_two_inputs():
    """A row of the second input is in the field second_row of its letter."""
    second = [{"k": "ann", "m": m} for m in (10, -11)]
    out = mp.local.run(Enriched(), rows(1, -2, 3), key="k", second=second, on_error="side_output")
    assert out == [("ann", [1]), ("ann", [1, 3])]
    first, other = out.side_output(mp.DEAD_LETTERS)
    assert (first.method, first.row, first.second_row) == (
        "Enriched.process_element1", ("ann", -2), None,
    )  # fmt: skip
    assert (other.method, other.row, other.second_row) == (
        "Enriched.process_element2", None, ("ann", -11),
    )  # fmt: skip


class Buffer(mp.ProcessFunction, mp.CheckpointedFunction):
    """Function without keys that keeps rows in operator state."""

    def initialize_state(self, context):
        store = context.operator_state_store
        self.list = store.get_list_state(mp.ListStateDescriptor("list", int))
        self.map = store.get_broadcast_state(mp.MapStateDescriptor("map", str, int))

    def snapshot_state(self, context):
        pass

    def process_element(self, row, context):
        self.list.add(row.n)
        self.list.add_all([row.n, row.n])
        self.map.put(str(row.n), row.n)
        self.map.remove("1")
        if row.n == -2:
            self.list.update([0])
            self.map.clear()
        if row.n == -3:
            self.list.clear()
            self.map.put_all({"a": 1})
        yield self.list.get(), dict(self.map.items())
        assert row.n >= 0


def test_operator_state_is_rolled_back():
    """Lists and broadcast maps are those of a run without the failed rows; there is no key."""
    numbers = (1, -1, 2, -2, 3, -3, 4)
    found = mp.local.run(Buffer(), rows(*numbers), on_error="side_output")
    assert found == mp.local.run(Buffer(), rows(*(n for n in numbers if n > 0)))
    letters = found.side_output(mp.DEAD_LETTERS)
    assert [(letter.key, letter.row.n) for letter in letters] == [
        (None, -1),
        (None, -2),
        (None, -3),
    ]


def test_broadcast_rows_fail_the_job():
    """Every subtask gets a broadcast row, so its error fails the job; keyed rows go to the letters."""

    class Limited(mp.KeyedBroadcastProcessFunction):
        LIMITS = mp.MapStateDescriptor("limits", str, int)

        def process_element(self, row, context):
            yield 10 // (row.n - context.get_broadcast_state(self.LIMITS)["most"])

        def process_broadcast_element(self, row, context):
            context.get_broadcast_state(self.LIMITS).put("most", 10 // row.n)

    given = {"key": "k", "on_error": "side_output"}
    out = mp.local.run(Limited(), rows(4, 5), broadcast=rows(2), **given)
    assert out == [-10]
    assert "ZeroDivisionError" in out.side_output(mp.DEAD_LETTERS)[0].error
    with pytest.raises(errors.UserFunctionError, match="process_broadcast_element failed"):
        mp.local.run(Limited(), rows(4), broadcast=rows(0), **given)


class Frames(mp.VectorizedProcessFunction):
    """Function that gets frames."""

    def process_batch(self, rows, context):
        return rows


@pytest.mark.parametrize(
    ("option", "value", "function", "said"),
    [
        ("on_error", "side_output", Frames, "frames instead of single rows"),
        ("null_event_times", "drop", Frames, "frames instead of single rows"),
        ("null_event_times", "side_output", Frames, "frames instead of single rows"),
        ("null_event_times", "drop", Checked, "no input has event times"),
    ],
)
def test_refusals(option, value, function, said):
    """Options that a function cannot have are refused before the first row."""
    with pytest.raises(errors.ConfigError, match=said) as caught:
        mp.local.run(function(), rows(1), key="k", **{option: value})
    assert caught.value.key == option


@pytest.mark.parametrize("option", ["on_error", "null_event_times"])
@pytest.mark.parametrize("value", ["aside", None, 1, ["fail"]])
def test_unknown_values(option, value):
    """Other values of the options are refused."""
    with pytest.raises((errors.ConfigError, errors.ArgumentTypeError), match=option):
        mp.local.run(Checked(), rows(1), key="k", event_time="n", **{option: value})


def test_short_forms():
    """The short forms of keyed functions have dead letters too."""
    summed = mp.keyed.reduce(lambda a, b: (a.k, 12 // (a.n - b.n)), "k string, n bigint")
    out = mp.local.run(summed, rows(4, 4, 1), key="k", on_error="side_output")
    assert [row.n for row in out] == [4, 4]
    assert [letter.row.n for letter in out.side_output(mp.DEAD_LETTERS)] == [4]


# ---------------------------------------------------------------- windows


def harmless(a, b):
    """Add two numbers; fail for a negative one."""
    if b < 0:
        raise ValueError(b)
    return a + b


def windowed(assigner, trigger=None):
    """Return windows that sum numbers."""
    made = windows.window(assigner)
    if trigger is not None:
        made = made.trigger(trigger)
    return made.reduce(harmless, int, lambda row: row.n)


ASSIGNERS = {
    "tumbling": lambda: windows.TumblingEventTimeWindows.of(10),
    "sliding": lambda: windows.SlidingEventTimeWindows.of(10, 5),
    "sessions": lambda: windows.EventTimeSessionWindows.with_gap(4),
}
WINDOW_ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-2, 5), st.integers(0, 40)), max_size=25
)


@pytest.mark.parametrize("name", list(ASSIGNERS))
@settings(max_examples=40, deadline=None)
@given(events=WINDOW_ROWS, often=st.booleans(), delay=st.integers(0, 15))
def test_windows(name, events, often, delay):
    """Windows are those of a run without the failed rows; the timers of their ends are set."""
    trigger = windows.CountTrigger.of(2) if often else None
    given_rows = [{"k": k, "n": n, "t": t, "at": at} for at, (k, n, t) in enumerate(events)]
    call = {"key": "k", "event_time": "t", "watermark_delay": delay}
    out = mp.local.run(
        windowed(ASSIGNERS[name](), trigger), given_rows, on_error="side_output", **call
    )
    failed = {letter.row.at for letter in out.side_output(mp.DEAD_LETTERS)}
    with mp.testing.KeyedOperatorHarness(windowed(ASSIGNERS[name](), trigger), key="k") as harness:
        for row in given_rows:
            if row["at"] not in failed:
                harness.process(row, row["t"])
            # The time of a failed row counts.
            highest = max(each["t"] for each in given_rows[: row["at"] + 1])
            harness.advance_watermark(highest - delay - 1)
        harness.advance_watermark(mp.MAX_TIMESTAMP)
        assert out == harness.output


def test_a_wrong_result_of_a_window_function():
    """A window that a row fires and whose function fails keeps the state of before the row."""

    def total(key, window, numbers):
        if sum(numbers) == 3:
            raise ValueError("three")
        yield sum(numbers)

    made = windows.count_window(2).process(total, int, lambda row: row.n)
    out = mp.local.run(made, rows(1, 2, 4), key="k", on_error="side_output")
    assert out == [5]
    assert [letter.row.n for letter in out.side_output(mp.DEAD_LETTERS)] == [2]


# ---------------------------------------------------------------- null event times

TIMED = [
    {"k": "ann", "n": 1, "t": 5},
    {"k": "ann", "n": 2, "t": None},
    {"k": "ann", "n": 3, "t": 7},
]


class Times(mp.KeyedProcessFunction):
    """Function that yields the rows' event times."""

    def process_element(self, row, context):
        yield row.n, context.timestamp


@BACKENDS
def test_null_event_times(backend):
    """A function gets rows without event time by default; they can be dropped or put aside."""
    call = {"key": "k", "event_time": "t", "backend": backend}
    assert mp.local.run(Times(), TIMED, **call) == [(1, 5), (2, None), (3, 7)]
    dropped = mp.local.run(Times(), TIMED, null_event_times="drop", **call)
    assert dropped == [(1, 5), (3, 7)]
    assert dropped.side_outputs == {}
    aside = mp.local.run(Times(), TIMED, null_event_times="side_output", **call)
    assert aside == [(1, 5), (3, 7)]
    (letter,) = aside.side_output(mp.DEAD_LETTERS)
    assert letter.error.startswith("NoEventTimeError: ")
    assert (letter.key, letter.traceback, letter.row.n) == ("ann", None, 2)


def test_null_event_times_of_windows():
    """Windows of event time refuse such rows by default."""
    call = {"key": "k", "event_time": "t"}
    with pytest.raises(errors.UserFunctionError, match="NoEventTimeError"):
        mp.local.run(windowed(ASSIGNERS["tumbling"]()), TIMED, **call)
    for option in ("null_event_times", "on_error"):
        out = mp.local.run(
            windowed(ASSIGNERS["tumbling"]()), TIMED, **{option: "side_output"}, **call
        )
        assert [row[-1] for row in out] == [4]
        (letter,) = out.side_output(mp.DEAD_LETTERS)
        assert letter.row.n == 2
        assert letter.error.startswith("NoEventTimeError: ")


def test_null_event_times_of_one_of_two_inputs():
    """Only the rows of an input that has event times need one."""

    class Both(mp.KeyedCoProcessFunction):
        def process_element1(self, row, context):
            yield 1, row.n

        def process_element2(self, row, context):
            yield 2, row.n

    call = {"key": "k", "second": TIMED, "null_event_times": "drop"}
    found = mp.local.run(Both(), TIMED, second_event_time="t", **call)
    assert sorted(found) == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 3)]
    found = mp.local.run(Both(), TIMED, event_time="t", **call)
    assert sorted(found) == [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3)]


@BACKENDS
def test_a_running_snapshot_does_not_change(backend):
    """A view of the state that is open while rows fail has the entries of before these rows."""
    operations = [
        ("list.add", "x"), ("longest.add", 1), ("map.put", 1, 2), ("mutable.update", [1]),
        ("space", 1, 2), ("short_map.put", 1, 1),
    ]  # fmt: skip
    more = [
        *operations,
        ("list.update", ["y"]),
        ("list.add", "z"),
        ("map.clear",),
        ("map.put", 3, 3),
    ]
    row = {"k": "a", "operations": operations, "fails": False}
    with mp.testing.KeyedOperatorHarness(
        Program(), key="k", backend=backend, on_error="side_output"
    ) as harness:
        harness.process(row)
        kept = harness._backend
        kept.flush()
        with closing(kept.freeze()) as view:
            before = [sorted(view.rows(group)) for group in kept.key_group_range]
            for _ in range(2):
                harness.process({**row, "operations": more, "fails": True})
                harness.process(row)
            assert [sorted(view.rows(group)) for group in kept.key_group_range] == before
    assert len(harness.output.side_output(mp.DEAD_LETTERS)) == 2


class _Suspended(mp.KeyedProcessFunction):
    """Fails while a generator is suspended whose ``finally`` block changes state."""

    def open(self, context):
        self.last = context.get_state(mp.ValueStateDescriptor("last", int, default=0))

    def _parts(self):
        try:
            yield 1
        finally:
            self.last.update(99)

    def process_element(self, row, context):
        parts = self._parts()
        next(parts)
        raise ValueError("fails")


def test_a_suspended_generator_changes_no_state_after_the_undo():
    function = _Suspended()
    with mp.testing.KeyedOperatorHarness(function, key="k", on_error="side_output") as harness:
        harness.process({"k": "a"})
        gc.collect()
        assert function.last.at("a").value() == 0
        assert len(harness.output.side_output(mp.DEAD_LETTERS)) == 1
