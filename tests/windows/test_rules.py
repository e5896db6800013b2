"""What windows refuse, and what their triggers are told."""

import operator

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
        lambda: windows.window("daily"),
        lambda: windows.window(windows.GlobalWindows.create()).allowed_lateness(-1),
    ],
)
def test_senseless_windows_are_refused(wrong):
    """Sizes, offsets, gaps, counts and lateness are checked at once."""
    with pytest.raises(errors.ConfigError):
        wrong()


def test_rows_without_event_time_are_refused():
    """A row that has none cannot be in an event-time window; the error says so."""
    function = summed(windows.TumblingEventTimeWindows.of(10))
    with harness(function) as operator, pytest.raises(errors.UserFunctionError, match="event time"):
        operator.process({"k": "a", "n": 1})


class OfWindow(windows.ProcessWindowFunction):
    """Asks for a state of its window when it fires, or when the window is over."""

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
    """It would stay behind for ever when windows merge; the error says what to use."""
    function = windows.window(assigner).process(OfWindow(at_the_end=at_the_end), int, "n")
    with harness(function) as operator:
        operator.process({"k": "a", "n": 1}, 5)
        reason = f"WindowStateError: State 'fired' .* {type(assigner).__name__}, .* global_state"
        by_event_time = assigner.is_event_time
        advance = operator.advance_watermark if by_event_time else operator.advance_processing_time
        with pytest.raises(errors.UserFunctionError, match=reason):
            advance(100)


class Recording(windows.Trigger):
    """Fires at each element, and keeps the timestamps that it was told."""

    def __init__(self):
        self.told = []

    def on_element(self, element, timestamp, context):
        self.told.append(timestamp)
        return windows.TriggerResult.FIRE


class Merging(Recording):
    """The same for windows that merge."""

    def on_merge(self, merged, context):
        pass


@MERGING
def test_a_trigger_that_cannot_merge_is_refused_when_the_job_is_built(assigner):
    """By itself and inside a purging one; with ``on_merge`` it may serve."""
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
    """Also in windows that do not go by it; of a row without one MIN_TIMESTAMP."""
    trigger = Recording()
    with harness(summed(assigner, trigger)) as operator:
        operator.process({"k": "a", "n": 1}, 77)
        operator.process({"k": "a", "n": 1})
    assert trigger.told == [77, mp.MIN_TIMESTAMP]
