"""Refused window settings, and the calls of triggers."""

import functools
import operator
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors, windows

MERGING = pytest.mark.parametrize(
    "assigner",
    [
        windows.EventTimeSessionWindows.with_gap(10),
        windows.ProcessingTimeSessionWindows.with_dynamic_gap(lambda row: row.n),
    ],
)


def summed(assigner, trigger=None):
    windowing = windows.window(assigner)
    windowing = windowing if trigger is None else windowing.trigger(trigger)
    return windowing.reduce(operator.add, int, "n")


def harness(function):
    return mp.testing.KeyedOperatorHarness(function, key="k")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: windows.TumblingEventTimeWindows.of(0),
        lambda: windows.TumblingEventTimeWindows.of(10, 10),
        lambda: windows.TumblingEventTimeWindows.of("10s"),
        lambda: windows.SlidingEventTimeWindows.of(10, 0),
        lambda: windows.EventTimeSessionWindows.with_gap(-1),
        lambda: windows.CountTrigger.of(0),
        lambda: windows.count_window(2, 0),
        lambda: windows.window(windows.GlobalWindows.create()).allowed_lateness(-1),
    ],
)
def test_senseless_windows_are_refused(wrong):
    """Wrong sizes, offsets, gaps, counts and lateness are refused at once."""
    with pytest.raises((errors.ConfigError, errors.ArgumentValueError)):
        wrong()


@pytest.mark.parametrize(
    "give",
    [
        windows.TumblingEventTimeWindows.of,
        lambda length: windows.TumblingEventTimeWindows.of(timedelta(seconds=1), length),
        lambda length: windows.SlidingEventTimeWindows.of(timedelta(seconds=1), length),
        windows.ProcessingTimeSessionWindows.with_gap,
        windows.ContinuousEventTimeTrigger.of,
        lambda length: windows.ProcessingTimeoutTrigger.of(windows.NeverTrigger(), length),
        windows.TimeEvictor.of,
        windows.window(windows.GlobalWindows.create()).allowed_lateness,
        mp.StateTtlConfig,
        lambda length: mp.StateTtlConfig.new_builder(timedelta(seconds=1)).set_ttl(length),
    ],
)
def test_parts_of_a_millisecond_are_refused(give):
    """A duration that is not a whole number of milliseconds is refused by name."""
    give(timedelta(milliseconds=2))
    with pytest.raises(errors.ConfigError, match=r"1500\b.* is not a whole number of milliseconds"):
        give(timedelta(microseconds=1500))


def test_a_dynamic_gap_of_a_part_of_a_millisecond_is_refused():
    """A dynamic gap that is not a whole number of milliseconds is refused with its row."""
    gaps = windows.EventTimeSessionWindows.with_dynamic_gap(lambda row: timedelta(microseconds=1))
    with (
        harness(summed(gaps)) as operator,
        pytest.raises(errors.UserFunctionError, match="whole number"),
    ):
        operator.process({"k": "a", "n": 1}, 5)


LEAST, MOST = mp.MIN_TIMESTAMP, mp.MAX_TIMESTAMP


class Ahead(windows.WindowAssigner):
    """Assigner of a time window from the row to a hundred ms later."""

    is_event_time = True

    def assign_windows(self, element, timestamp):
        return [windows.TimeWindow(timestamp, timestamp + 100)]


HUNDREDS = {
    "tumbling": windows.TumblingEventTimeWindows.of(100),
    "by local time": windows.TumblingEventTimeWindows.of(100, time_zone="UTC"),
    "sliding": windows.SlidingEventTimeWindows.of(100, 30),
    "session": windows.EventTimeSessionWindows.with_gap(100),
    "dynamic": windows.EventTimeSessionWindows.with_dynamic_gap(lambda row: 100),
    "own": Ahead(),
    "by the clock": windows.TumblingProcessingTimeWindows.of(100),
}


@pytest.mark.parametrize("name", HUNDREDS)
def test_windows_outside_of_64_bits_are_refused_by_time_and_window(name):
    """Near both ends of time, a row is in its windows, or an error names its time and window."""
    assigner = HUNDREDS[name]
    for time in [*range(LEAST, LEAST + 250, 7), *range(MOST - 250, MOST + 1, 7), MOST]:
        assigned = assigner.assign_windows(None, time)
        fits = all(start >= LEAST and end <= MOST for start, end in assigned)
        clock = 0 if assigner.is_event_time else time
        with mp.testing.KeyedOperatorHarness(summed(assigner), key="k", clock_ms=clock) as opened:
            if fits:
                opened.process({"k": "a", "n": 1}, time)
                continue
            reason = rf"WindowRangeError: The window from -?\d+ to -?\d+ ms, of a row at {time} ms"
            with pytest.raises(errors.UserFunctionError, match=reason):
                opened.process({"k": "a", "n": 1}, time)


def test_a_window_up_to_the_last_moment_is_over_before_it():
    """Only the window of GlobalWindows contains the largest time."""
    assert windows.TimeWindow(0, MOST).max_timestamp() == MOST - 1
    (everything,) = windows.GlobalWindows.create().assign_windows(None, 0)
    assert everything.max_timestamp() == MOST
    function = summed(windows.TumblingEventTimeWindows.of(MOST))
    with harness(function) as opened:
        opened.process({"k": "a", "n": 1}, 5)
        opened.advance_watermark(MOST - 1)
        assert opened.output == [("a", 0, MOST, 1)]


@pytest.mark.parametrize("assigner", [HUNDREDS["tumbling"], HUNDREDS["session"]])
def test_windows_with_the_greatest_lateness_are_kept(assigner):
    """With the greatest lateness, late rows fire their windows and sessions merge, while Flink overflows."""
    windowing = windows.window(assigner).allowed_lateness(MOST)
    with harness(windowing.reduce(operator.add, int, "n")) as opened:
        for time in (5, 90):
            opened.process({"k": "a", "n": 1}, time)
            opened.advance_watermark(10**6)
        assert [row[-1] for row in opened.output] == [1, 2]


def test_rows_without_event_time_are_refused():
    """A row without event time is refused by event-time windows."""
    function = summed(windows.TumblingEventTimeWindows.of(10))
    with harness(function) as operator, pytest.raises(errors.UserFunctionError, match="event time"):
        operator.process({"k": "a", "n": 1})


class OfWindow(windows.ProcessWindowFunction):
    """Window function that requests a window's state when it fires or ends."""

    state = mp.ValueStateDescriptor("fired", int)

    def __init__(self, *, at_the_end):
        self.at_the_end = at_the_end

    def process(self, key, context, elements):
        if not self.at_the_end:
            context.window_state(self.state).update(1)
        return [elements]

    def clear(self, context):
        context.window_state(self.state).clear()


@MERGING
@pytest.mark.parametrize("at_the_end", [False, True])
def test_merging_windows_have_no_state_of_their_own(assigner, at_the_end):
    """Windows that merge have no state of their own; the error names the alternative."""
    function = windows.window(assigner).process(OfWindow(at_the_end=at_the_end), int, "n")
    with harness(function) as operator:
        operator.process({"k": "a", "n": 1}, 5)
        reason = f"WindowStateError: State 'fired' .* {type(assigner).__name__}, .* global_state"
        by_event_time = assigner.is_event_time
        advance = operator.advance_watermark if by_event_time else operator.advance_processing_time
        with pytest.raises(errors.UserFunctionError, match=reason):
            advance(100)


class Recording(windows.Trigger):
    """Trigger that fires at each element, and records the timestamps."""

    def __init__(self):
        self.told = []

    def on_element(self, element, timestamp, window, ctx):
        self.told.append(timestamp)
        return windows.TriggerResult.FIRE


class Merging(Recording):
    """Trigger that fires at each element, records the timestamps, and can merge."""

    def on_merge(self, window, ctx):
        pass


@MERGING
def test_a_trigger_that_cannot_merge_is_refused_when_the_job_is_built(assigner):
    """For merging windows, a trigger without ``on_merge`` is refused, also inside a PurgingTrigger."""
    for trigger in (Recording(), windows.PurgingTrigger.of(Recording())):
        with pytest.raises(errors.ConfigError, match=r"Windows merge, but .*Recording.* does not"):
            summed(assigner, trigger)
    for trigger in (Merging(), windows.PurgingTrigger.of(Merging())):
        summed(assigner, trigger)
    summed(windows.TumblingEventTimeWindows.of(10), Recording())


@pytest.mark.parametrize(
    "assigner",
    [windows.GlobalWindows.create(), windows.TumblingProcessingTimeWindows.of(10)],
)
def test_triggers_are_told_the_event_time_of_rows(assigner):
    """Triggers get the rows' event times in all windows; MIN_TIMESTAMP if a row has none."""
    trigger = Recording()
    with harness(summed(assigner, trigger)) as operator:
        operator.process({"k": "a", "n": 1}, 77)
        operator.process({"k": "a", "n": 1})
    assert trigger.told == [77, mp.MIN_TIMESTAMP]


class Opened(windows.ProcessWindowFunction):
    """Window function that records `open` and `close`."""

    def __init__(self):
        self.told = []

    def open(self, context):
        self.told.append(("open", context.info.index))

    def process(self, key, context, elements):
        self.told.append(elements)
        return []

    def close(self):
        self.told.append("close")


def test_the_function_of_windows_is_opened_and_closed():
    """A window function is opened before the first row and closed after the last one, once."""
    function = Opened()
    with harness(windows.count_window(2).process(function, int, "n")) as operator:
        for n in range(4):
            operator.process({"k": "a", "n": n})
    assert function.told == [("open", 0), [0, 1], [2, 3], "close"]


class Last(mp.AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return b


def test_an_evictor_needs_the_elements_of_an_aggregation():
    """``aggregate`` with an evictor needs type and value of the elements."""
    windowing = windows.count_window(2, 1)
    with pytest.raises(errors.ConfigError, match="give element_type= and value="):
        windowing.aggregate(Last(), int)


def test_a_trigger_merges_only_states_that_can_be_merged():
    """``merge_partitioned_state`` of a value state is refused with the state's name."""

    class Wrong(Merging):
        def on_merge(self, window, ctx):
            ctx.merge_partitioned_state(mp.ValueStateDescriptor("mine", int))

    with harness(summed(windows.EventTimeSessionWindows.with_gap(10), Wrong())) as operator:
        operator.process({"k": "a", "n": 1}, 0)
        with pytest.raises(errors.MillpondError, match="value state 'mine' cannot be merged"):
            operator.process({"k": "a", "n": 1}, 5)


class ByNumber(windows.TumblingEventTimeWindows):
    """Assigner of windows that begin at a row's number, whose method wraps Millpond's."""

    @functools.wraps(windows.TumblingEventTimeWindows.assign_windows)
    def assign_windows(self, element, timestamp):
        yield windows.TimeWindow(element.n, element.n + self.size)


def test_a_method_that_wraps_millponds_is_asked_for_each_row():
    """A wrapped method is called for each row: rows of one time may have different windows."""
    function = summed(ByNumber.of(10))
    rows = [{"k": "a", "n": n, "ms": 1} for n in (1, 2, 3)]
    found = mp.local.run(function, rows, key="k", event_time="ms")
    assert found == [("a", 1, 11, 1), ("a", 2, 12, 2), ("a", 3, 13, 3)]


class Restless(windows.EventTimeTrigger):
    """Trigger that sets the fired timer again."""

    def on_event_time(self, time, window, ctx):
        ctx.register_event_time_timer(time)
        return super().on_event_time(time, window, ctx)


def test_a_clean_up_that_a_trigger_sets_anew_goes_with_its_window():
    """As in Flink, a timer that a trigger sets again at the window's end is dropped with the window."""
    with harness(summed(windows.TumblingEventTimeWindows.of(10), Restless())) as opened:
        opened.process({"k": "a", "n": 1}, 2)
        opened.advance_watermark(30)
        assert opened.output == [("a", 0, 10, 1)]
        assert not any(opened._operator.timers.next_due())
