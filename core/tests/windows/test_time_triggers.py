"""Continuous triggers at the end of a window and of time, and differences that are NaN."""

import math
from operator import add

import millpond as mp
import pytest
from millpond import windows

from core.tests.windows.bounds import within_bounds

TENS = {
    "event": windows.ContinuousEventTimeTrigger.of(10),
    "clock": windows.ContinuousProcessingTimeTrigger.of(10),
}
GLOBAL = windows.window(windows.GlobalWindows.create())
LAST = mp.MAX_TIMESTAMP


def fired(windowing, steps, clock_ms=0):
    """Return the output of each step: a row with an event time or None, or a time."""
    function = windowing.reduce(add, int, "n", lambda key, window, total: [total])
    found = []
    opened = mp.testing.KeyedOperatorHarness(function, key="k", clock_ms=clock_ms)
    with within_bounds(), opened as harness:
        does = {
            "row": lambda timestamp: harness.process({"k": "a", "n": 1}, timestamp),
            "watermark": harness.advance_watermark,
            "clock": harness.advance_processing_time,
        }
        for what, moment in steps:
            does[what](moment)
            found.append(list(harness.output))
            harness.output.clear()
    return found


@pytest.mark.parametrize(
    ("clock_ms", "steps", "wanted"),
    [
        (5, [("clock", 11), ("clock", 36), ("clock", 55)], [[1], [1, 1, 1], []]),
        (34, [("clock", 34), ("clock", 35), ("clock", 55)], [[], [1], []]),
        (1000, [("clock", 1001), ("clock", 1011), ("clock", 1031)], [[1], [], []]),
    ],
)
def test_the_clock_stops_at_the_end_of_a_window_of_event_time(clock_ms, steps, wanted):
    """As in Flink the firing after the window's end is the last one, also for later rows."""
    windowing = windows.window(windows.TumblingEventTimeWindows.of(35)).trigger(TENS["clock"])
    later = [("row", 2), ("clock", 1900), ("watermark", 34), ("clock", 2000)]
    found = fired(windowing, [("row", 1), *steps, *later], clock_ms)
    assert found == [[], *wanted, [], [], [], []]


@pytest.mark.parametrize("moment", [29, 34])
def test_a_window_by_the_clock_fires_at_its_end(moment):
    """A window of processing time fires at its end, also for a row in its last millisecond, and is dropped."""
    windowing = windows.window(windows.TumblingProcessingTimeWindows.of(35)).trigger(TENS["clock"])
    found = fired(windowing, [("row", None), ("clock", 35), ("clock", 99)], moment)
    assert [len(each) for each in found] == [0, 1 + (moment < 30), 0]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [([1, 25], [2, 2]), ([None, 25], [2, 2]), ([None], [1]), ([LAST], [1])],
)
def test_a_window_without_end_fires_once_more_when_the_input_ends(rows, wanted):
    """A window without an end fires once more at the end of the input; a row without event time starts no interval."""
    windowing = GLOBAL.trigger(TENS["event"])
    steps = [("row", moment) for moment in rows]
    assert fired(windowing, [*steps, ("watermark", LAST)])[-1] == wanted


def test_a_row_without_event_time_is_in_the_next_firing():
    """A row without event time is part of the next firing, in windows of processing time too."""
    clocked = windows.window(windows.TumblingProcessingTimeWindows.of(100)).trigger(TENS["event"])
    for windowing in (GLOBAL.trigger(TENS["event"]), clocked):
        steps = [("row", None), ("watermark", 3), ("row", 5), ("watermark", 20)]
        assert fired(windowing, steps) == [[], [], [], [2, 2]]


def test_intervals_before_1970_are_those_of_flink():
    """Before 1970 intervals are those of Flink, where Java's remainder is negative."""
    windowing = windows.window(windows.TumblingEventTimeWindows.of(50)).trigger(TENS["event"])
    steps = [("row", -37), ("watermark", -30), ("watermark", -20), ("watermark", -10)]
    assert fired(windowing, steps) == [[], [], [1], [1]]


def test_a_timeout_may_end_after_the_last_moment():
    """A timeout beyond the largest time never comes, and is no error."""
    timeout = windows.ProcessingTimeoutTrigger.of(windows.CountTrigger.of(2), LAST)
    steps = [("row", None), ("clock", 9999), ("row", None)]
    assert fired(GLOBAL.trigger(timeout), steps, 5) == [[], [], [2]]


def difference(first, second):
    return second - first


def held(windowing, values):
    """Return the content of the windows that fire."""
    function = windowing.process(lambda key, window, held: [held], float, "x")
    return mp.local.run(function, [{"k": "a", "x": x} for x in values], key="k")


def test_a_difference_of_nan_fires_nothing():
    """As in Flink a difference of NaN does not fire, and the element is not remembered."""
    trigger = windows.DeltaTrigger.of(1.0, difference, float, "x")
    told = held(GLOBAL.trigger(trigger), [0.0, math.nan, 0.5, 2.0, math.nan, 9.0])
    assert [len(each) for each in told] == [4, 6]


def test_a_difference_of_nan_evicts_nothing():
    """As in Flink an element is evicted if the difference reaches the threshold, not if it is NaN."""
    evicting = GLOBAL.evictor(windows.DeltaEvictor.of(1.0, difference))
    threes = evicting.trigger(windows.CountTrigger.of(3))
    assert repr(held(threes, [0.0, math.nan, 2.5])) == "[[nan, 2.5]]"
    assert repr(held(threes, [0.0, 2.5, math.nan])) == "[[0.0, 2.5, nan]]"
