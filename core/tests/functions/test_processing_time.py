"""A processing-time timer fires once the clock has passed its time, locally and in the harness."""

import operator

import millpond as mp
import pytest
from millpond import windows


class Alarm(mp.KeyedProcessFunction):
    """Function that sets a timer for the time in the row, and yields the time when it fires."""

    def process_element(self, row, context):
        context.timer_service().register_processing_time_timer(row.at)

    def on_timer(self, timestamp, context):
        yield timestamp, context.timer_service().current_processing_time()


def alarm(at):
    return {"k": "a", "at": at}


def test_a_timer_fires_after_its_time():
    """At exactly its time a timer does not fire, because another row can still come."""
    with mp.testing.KeyedOperatorHarness(Alarm(), key="k", clock_ms=9) as harness:
        for at in (8, 9, 10):
            harness.process(alarm(at))
        assert harness.output == []
        harness.advance_processing_time(9)
        assert harness.output == [(8, 9)]
        harness.advance_processing_time(10)
        assert harness.output == [(8, 9), (9, 10)]
        harness.advance_processing_time(11)
        assert harness.output == [(8, 9), (9, 10), (10, 11)]


class Chain(Alarm):
    """Function that sets another timer when one fires."""

    def on_timer(self, timestamp, context):
        context.timer_service().register_processing_time_timer(timestamp + 1)
        yield timestamp


def test_a_timer_that_is_set_in_the_callback_is_due_by_the_same_rule():
    """A timer set in the callback fires at once if its time has passed, and waits if it is now."""
    with mp.testing.KeyedOperatorHarness(Chain(), key="k") as harness:
        harness.process(alarm(5))
        harness.advance_processing_time(8)
        assert harness.output == [5, 6, 7]


def at_moments(clock, *rows):
    """Yield rows, and set the clock to each row's ``now``."""
    for row in rows:
        clock.set(row["now"])
        yield row


def test_a_local_run_fires_what_the_clock_has_passed():
    """Timers fire before each row and after the last one; a timer for a later time does not."""
    clock = mp.ManualClock(0)
    rows = at_moments(
        clock,
        {"k": "a", "at": 5, "now": 1},
        {"k": "a", "at": 9, "now": 5},
        {"k": "a", "at": 4, "now": 6},
        {"k": "a", "at": 11, "now": 11},
    )
    out = mp.local.run(Alarm(), rows, key="k", clock=clock)
    assert out == [(5, 6), (4, 11), (9, 11)]


def summed(assigner):
    return windows.window(assigner).reduce(operator.add, int, "n")


@pytest.mark.parametrize(
    "assigner",
    [
        windows.TumblingProcessingTimeWindows.of(10),
        windows.ProcessingTimeSessionWindows.with_gap(1),
        windows.ProcessingTimeSessionWindows.with_gap(10),
    ],
)
def test_a_window_takes_its_last_millisecond_and_fires_once(assigner):
    """Rows at a window's last millisecond belong to the window, which fires once."""
    with mp.testing.KeyedOperatorHarness(summed(assigner), key="k", clock_ms=9) as harness:
        harness.process({"k": "a", "n": 5})
        harness.process({"k": "a", "n": 6})
        harness.advance_processing_time(9)
        assert harness.output == []
        harness.advance_processing_time(100)
        assert [row[-1] for row in harness.output] == [11]
        assert harness._backend.num_state_entries() == 0
        assert harness._operator.timers.next_due() == (None, None)


def test_windows_in_a_local_run():
    """In a local run each window fires once the clock has passed its end."""
    clock = mp.ManualClock(0)
    rows = [{"k": "a", "n": n, "now": now} for n, now in ((1, 9), (2, 9), (4, 10), (8, 20))]
    function = summed(windows.TumblingProcessingTimeWindows.of(10))
    out = mp.local.run(function, at_moments(clock, *rows), key="k", clock=clock)
    assert out == [("a", 0, 10, 3), ("a", 10, 20, 4)]
