"""Windows in the harness and in local runs: assigners, triggers, lateness, merging, snapshots."""

import random
from datetime import timedelta

import millpond as mp
import pytest
from millpond import windows

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
SECOND = 1000


def add(a, b):
    return a + b


def row(k, t, n=1):
    """Return a row of key, event time in seconds, and number."""
    return {"k": k, "t": t * SECOND, "n": n}


def summed(windowing):
    """Return windows that sum ``n``."""
    return windowing.reduce(add, int, "n")


def run(function, rows, backend="heap", **options):
    return sorted(
        mp.local.run(function, rows, key="k", event_time="t", backend=backend, **options), key=repr
    )


def harness(function, backend="heap", **options):
    return mp.testing.KeyedOperatorHarness(function, key="k", backend=backend, **options)


def feed(operator, *rows):
    for each in rows:
        operator.process(each, each["t"])


def new_output(operator):
    """Return the output since the last call."""
    out = list(operator.output)
    operator.output.clear()
    return out


@BACKENDS
def test_tumbling_windows(backend):
    """Each row falls into one window; the default output is key, start, end and value."""
    function = summed(windows.window(windows.TumblingEventTimeWindows.of(timedelta(seconds=10))))
    rows = [row("a", 1), row("a", 9, 2), row("a", 10, 5), row("b", -1, 7)]
    assert run(function, rows, backend) == [
        ("a", 0, 10_000, 3),
        ("a", 10_000, 20_000, 5),
        ("b", -10_000, 0, 7),
    ]


@BACKENDS
def test_sliding_windows(backend):
    """Each row falls into size / slide windows."""
    function = summed(windows.window(windows.SlidingEventTimeWindows.of(10_000, 5_000)))
    assert run(function, [row("a", 7), row("a", 12, 2)], backend) == [
        ("a", 0, 10_000, 1),
        ("a", 10_000, 20_000, 2),
        ("a", 5_000, 15_000, 3),
    ]


def sessions(rows, gap):
    """Return the expected sessions, computed by sorting."""
    found = []
    for each in sorted(rows, key=lambda each: (each["k"], each["t"])):
        last = found[-1] if found else None
        if last and last[0] == each["k"] and each["t"] <= last[2]:
            last[2] = each["t"] + gap
            last[3] += each["n"]
        else:
            found.append([each["k"], each["t"], each["t"] + gap, each["n"]])
    return sorted(map(tuple, found), key=repr)


@BACKENDS
@pytest.mark.parametrize("kind", ["reduce", "aggregate", "process"])
def test_session_windows_merge(backend, kind):
    """Rows in any order give the sessions computed by sorting, for each kind of window content."""
    windowing = windows.window(windows.EventTimeSessionWindows.with_gap(5 * SECOND))
    function = {
        "reduce": lambda: summed(windowing),
        "aggregate": lambda: windowing.aggregate(Total(), int),
        "process": lambda: windowing.process(
            lambda key, window, elements: [(key, *window, sum(elements))], int, "n"
        ),
    }[kind]()
    shuffle = random.Random(7)
    rows = [row(shuffle.choice("ab"), shuffle.randrange(200), n) for n in range(60)]
    assert run(function, rows, backend) == sessions(rows, 5 * SECOND)


class Total(mp.AggregateFunction):
    """Aggregate function that sums ``n``."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value.n

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


@BACKENDS
def test_merged_sessions_fire_once_and_leave_nothing(backend):
    """A row between two sessions merges them; after the end no state and no timer is left."""
    function = summed(windows.window(windows.EventTimeSessionWindows.with_gap(5 * SECOND)))
    with harness(function, backend) as operator:
        feed(operator, row("a", 0), row("a", 8, 2), row("a", 4, 4))
        operator.advance_watermark(12 * SECOND)
        assert new_output(operator) == []
        operator.advance_watermark(13 * SECOND)
        assert new_output(operator) == [("a", 0, 13_000, 7)]
        assert operator._backend.num_state_entries() == 0
        assert operator._operator.timers.next_due() == (None, None)


@BACKENDS
def test_allowed_lateness_and_late_rows(backend):
    """Within the lateness a late row fires its window again; later it goes to the side output."""
    windowing = windows.window(windows.TumblingEventTimeWindows.of(10 * SECOND))
    function = summed(windowing.allowed_lateness(timedelta(seconds=5)).side_output_late_data())
    with harness(function, backend) as operator:
        feed(operator, row("a", 1))
        operator.advance_watermark(10 * SECOND)
        assert new_output(operator) == [("a", 0, 10_000, 1)]
        feed(operator, row("a", 2, 2))
        assert new_output(operator) == [("a", 0, 10_000, 3)]
        operator.advance_watermark(15 * SECOND)
        assert operator._backend.num_state_entries() == 0
        feed(operator, row("a", 3, 4), row("a", 11, 8))
        (late,) = new_output(operator)
        assert isinstance(late, windows.LateRow)
        assert late.row.n == 4


def test_late_rows_are_dropped_without_a_side_output():
    """A row whose windows have all ended gives no output."""
    function = summed(windows.window(windows.TumblingEventTimeWindows.of(10 * SECOND)))
    rows = [row("a", 1), row("a", 30), row("a", 2, 100)]
    assert run(function, rows, watermark_delay=0) == [("a", 0, 10_000, 1), ("a", 30_000, 40_000, 1)]


def test_processing_time_windows():
    """Windows of processing time follow the clock and ignore the rows' event times."""
    assigner = windows.TumblingProcessingTimeWindows.of(10 * SECOND)
    with harness(summed(windows.window(assigner)), clock_ms=3_000) as operator:
        operator.process({"k": "a", "n": 1})
        operator.advance_processing_time(9_998)
        operator.process({"k": "a", "n": 2})
        assert new_output(operator) == []
        operator.advance_processing_time(10_000)
        assert new_output(operator) == [("a", 0, 10_000, 3)]
        assert operator._backend.num_state_entries() == 0


def test_processing_time_sessions():
    """A session ends once the clock has passed the gap."""
    assigner = windows.ProcessingTimeSessionWindows.with_dynamic_gap(lambda row: row.n * SECOND)
    with harness(summed(windows.window(assigner))) as operator:
        operator.process({"k": "a", "n": 3})
        operator.advance_processing_time(2_000)
        operator.process({"k": "a", "n": 5})
        operator.advance_processing_time(6_000)
        assert new_output(operator) == []
        operator.advance_processing_time(7_000)
        assert new_output(operator) == [("a", 0, 7_000, 8)]


@pytest.mark.parametrize(("purging", "sums"), [(False, [3, 10]), (True, [3, 7])])
def test_count_triggers_on_global_windows(purging, sums):
    """Count triggers fire at every n-th row, and purge if requested."""
    trigger = windows.CountTrigger.of(2)
    windowing = windows.window(windows.GlobalWindows.create())
    function = summed(windowing.trigger(windows.PurgingTrigger.of(trigger) if purging else trigger))
    with harness(function) as operator:
        for n in (1, 2, 3, 4, 5):
            operator.process({"k": "a", "n": n})
        assert [each[-1] for each in operator.output] == sums


def test_count_triggers_merge_with_their_windows():
    """When windows merge, their counts are added."""
    assigner = windows.EventTimeSessionWindows.with_gap(5 * SECOND)
    function = summed(windows.window(assigner).trigger(windows.CountTrigger.of(3)))
    with harness(function) as operator:
        feed(operator, row("a", 0), row("a", 8, 2), row("a", 4, 4))
        assert new_output(operator) == [("a", 0, 13_000, 7)]


class Report(windows.ProcessWindowFunction):
    """Window function that counts the firings of a window and of a key."""

    window_count = mp.ValueStateDescriptor("window-count", int, default=0)
    key_count = mp.ValueStateDescriptor("key-count", int, default=0)

    def process(self, key, context, elements):
        counts = []
        for state in (
            context.window_state(self.window_count),
            context.global_state(self.key_count),
        ):
            state.update(state.value() + 1)
            counts.append(state.value())
        yield key, context.window.start, sorted(elements), *counts, context.current_watermark()

    def clear(self, context):
        context.window_state(self.window_count).clear()


@BACKENDS
def test_window_functions_have_state_of_window_and_key(backend):
    """State of a window is dropped with it; state of the key remains."""
    windowing = windows.window(windows.TumblingEventTimeWindows.of(10 * SECOND))
    function = windowing.allowed_lateness(1).process(Report(), int, "n")
    with harness(function, backend) as operator:
        feed(operator, row("a", 1))
        operator.advance_watermark(9_999)
        feed(operator, row("a", 2, 2), row("a", 12, 3))
        operator.advance_watermark(30_000)
        assert [each[:5] for each in operator.output] == [
            ("a", 0, [1], 1, 1),
            ("a", 0, [1, 2], 2, 2),
            ("a", 10_000, [3], 1, 3),
        ]
        assert operator._backend.num_state_entries() == 1


@BACKENDS
@pytest.mark.parametrize("form", ["snapshot", "savepoint"])
def test_windows_survive(tmp_path, backend, form):
    """Open and merged windows, with timers and counts, are part of snapshots and savepoints."""
    assigner = windows.EventTimeSessionWindows.with_gap(5 * SECOND)
    with harness(summed(windows.window(assigner)), backend) as operator:
        feed(operator, row("a", 0), row("b", 1, 3), row("a", 4, 2))
        handle = operator.snapshot() if form == "snapshot" else operator.savepoint(tmp_path)
    with harness(summed(windows.window(assigner)), backend, restore=handle) as operator:
        feed(operator, row("a", 9, 4))
        operator.advance_watermark(100 * SECOND)
        assert sorted(operator.output) == [("a", 0, 14_000, 7), ("b", 1_000, 6_000, 3)]
        assert operator._backend.num_state_entries() == 0


def test_offsets():
    """Windows begin at multiples of their size plus the offset."""
    assigner = windows.TumblingEventTimeWindows.of(timedelta(days=1), timedelta(hours=-8))
    (window,) = assigner.assign_windows(None, 0)
    assert window == (-28_800_000, 57_600_000)
    assert window.max_timestamp() == 57_599_999


class Names(Total):
    """Aggregate function whose result is an empty list."""

    def get_result(self, accumulator):
        return []


def test_an_empty_result_is_a_result():
    """A window whose aggregate is an empty list fires."""
    function = windows.window(windows.TumblingEventTimeWindows.of(10 * SECOND)).aggregate(
        Names(), int
    )
    assert run(function, [row("a", 1)]) == [("a", 0, 10_000, [])]
