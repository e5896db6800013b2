"""Users' assigners, triggers and evictors: their results, and errors that name their methods."""

from operator import add

import millpond as mp
import pytest
from millpond import errors, windows

from core.tests.windows.shifts import Shift

TENS = windows.window(windows.TumblingEventTimeWindows.of(10))
WHERE = r"\(.*test_own_parts\.py, line \d+\): it returned"


class Shifts(windows.WindowAssigner):
    """Assigner of two windows for each row, one after the other."""

    is_event_time = True
    window_type = Shift

    def assign_windows(self, element, timestamp):
        yield Shift(element["user"], timestamp // 10 * 10 + 10)
        yield Shift(element["user"], timestamp // 10 * 10 + 20)


class Tens(windows.WindowAssigner):
    """The same assigner for time windows."""

    is_event_time = True

    def assign_windows(self, element, timestamp):
        start = timestamp // 10 * 10
        return (windows.TimeWindow(start + at, start + at + 10) for at in (0, 10))


def harness(function):
    return mp.testing.KeyedOperatorHarness(function, key="user")


def played(function):
    """Process a row, and then advance the time."""
    with harness(function) as operator:
        operator.process({"user": "ann", "n": 1}, 1)
        operator.advance_watermark(10)
        operator.advance_processing_time(20)


@pytest.mark.parametrize(("assigner", "part"), [(Shifts(), "ann"), (Tens(), 0)])
def test_an_assigner_may_yield_its_windows(assigner, part):
    """An assigner may yield its windows; none is lost, for the first and later rows."""
    late = mp.OutputTag("late")
    function = windows.window(assigner).side_output_late_data(late).reduce(add, int, "n")
    rows = [{"user": "ann", "ms": 0, "n": 3}, {"user": "ann", "ms": 5, "n": 4}]
    out = mp.local.run(function, rows, key="user", event_time="ms")
    assert out == [("ann", part, 10, 7), ("ann", part or 10, 20, 7)]
    assert out.side_output(late) == []


class Nothing(windows.WindowAssigner):
    """Assigner that returns None."""

    is_event_time = True

    def assign_windows(self, element, timestamp):
        pass


class Single(Nothing):
    """Assigner that returns one window instead of a list."""

    def assign_windows(self, element, timestamp):
        return windows.TimeWindow(0, 10)


class Numbers(Nothing):
    """Assigner that returns the beginnings of its windows."""

    def assign_windows(self, element, timestamp):
        return [windows.TimeWindow(0, 10), 10]


class Pairs(Nothing):
    """Assigner that yields plain tuples."""

    def assign_windows(self, element, timestamp):
        yield (0, 10)


class Foreign(Nothing):
    """Assigner that returns windows of another type than declared."""

    window_type = Shift

    def assign_windows(self, element, timestamp):
        return (windows.TimeWindow(0, 10),)


@pytest.mark.parametrize("assigner", [Nothing, Single, Numbers, Pairs, Foreign])
def test_an_assigner_returns_windows_of_its_type(assigner):
    """None, a single window, or windows of another type are refused."""
    function = windows.window(assigner()).reduce(add, int, "n")
    with pytest.raises(errors.UserFunctionError):
        played(function)


class OnElement(windows.Trigger):
    """Trigger that returns None for a row."""

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer(window.max_timestamp())


class OnEventTime(OnElement):
    """Trigger that returns None when the watermark advances."""

    def on_element(self, element, timestamp, window, ctx):
        super().on_element(element, timestamp, window, ctx)
        return windows.TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return True


class OnProcessingTime(OnElement):
    """Trigger that returns None when the clock advances."""

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_processing_time_timer(5)
        return windows.TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        pass


@pytest.mark.parametrize(
    "around",
    [
        lambda trigger: trigger,
        windows.PurgingTrigger.of,
        lambda trigger: windows.ProcessingTimeoutTrigger.of(trigger, 1000),
    ],
)
@pytest.mark.parametrize(
    ("trigger", "method"),
    [
        (OnElement(), "on_element"),
        (OnEventTime(), "on_event_time"),
        (OnProcessingTime(), "on_processing_time"),
    ],
)
def test_a_trigger_returns_a_result(trigger, method, around):
    """A trigger's result other than a TriggerResult is refused, also inside another trigger."""
    function = TENS.trigger(around(trigger)).reduce(add, int, "n")
    reason = rf"{type(trigger).__name__}\.{method} failed {WHERE}.*return a TriggerResult from"
    with pytest.raises(errors.UserFunctionError, match=reason):
        played(function)


class Before(windows.Evictor):
    """Evictor that removes elements in place before the firing, as in Flink, and returns None."""

    def evict_before(self, elements, window, ctx):
        del elements[:1]


class After(windows.Evictor):
    """Evictor that removes elements in place after the firing, and returns None."""

    def evict_after(self, elements, window, ctx):
        del elements[:1]


@pytest.mark.parametrize(("evictor", "m"), [(Before(), "evict_before"), (After(), "evict_after")])
def test_an_evictor_returns_what_stays(evictor, m):
    """An evictor that returns None is refused."""
    function = TENS.evictor(evictor).reduce(add, int, "n")
    reason = (
        rf"{type(evictor).__name__}\.{m} failed {WHERE}.*return a list of the remaining elements"
    )
    with pytest.raises(errors.UserFunctionError, match=reason):
        played(function)


class Small(windows.Evictor):
    """Evictor that yields the remaining elements."""

    def evict_before(self, elements, window, ctx):
        yield from (element for element in elements if element.value < 5)

    def evict_after(self, elements, window, ctx):
        return filter(None, elements)


def test_an_evictor_may_yield_what_stays():
    """Elements that an evictor yields are used by the function and kept for the next firing."""
    made = windows.window(windows.GlobalWindows.create()).trigger(windows.CountTrigger.of(2))
    function = made.evictor(Small()).process(lambda key, window, held: [held], int, "n")
    with harness(function) as operator:
        for n in (1, 9, 2, 8):
            operator.process({"user": "ann", "n": n})
        assert list(operator.output) == [[1], [1, 2]]


class Yielding(windows.ProcessWindowFunction):
    """Trigger with a ``yield`` in a method without rows."""

    def process(self, key, context, elements):
        yield elements


class Clearing(windows.CountTrigger):
    """Trigger with a ``yield`` in `clear`."""

    def clear(self, window, ctx):
        yield


class Merging(windows.CountTrigger):
    """Trigger with a ``yield`` in `on_merge`."""

    def on_merge(self, window, ctx):
        yield


@pytest.mark.parametrize("around", [lambda trigger: trigger, windows.PurgingTrigger.of])
@pytest.mark.parametrize(
    ("trigger", "assigner", "method"),
    [
        (Clearing(1), windows.TumblingEventTimeWindows.of(10), "Clearing.clear"),
        (Merging(1), windows.EventTimeSessionWindows.with_gap(10), "Merging.on_merge"),
    ],
)
def test_methods_of_triggers_that_give_nothing_have_no_yield(trigger, assigner, method, around):
    """A yield in these methods is refused, because the trigger's state would remain or be lost."""
    function = windows.window(assigner).trigger(around(trigger)).reduce(add, int, "n")
    rows = [{"user": "ann", "ms": ms, "n": 1} for ms in (1, 2)]
    reason = f"{method} gives no rows, .* leave the yield out"
    with pytest.raises(errors.UserFunctionError, match=reason):
        mp.local.run(function, rows, key="user", event_time="ms")


@pytest.mark.parametrize("method", ["open", "clear", "close"])
def test_methods_that_give_no_rows_have_no_yield(method):
    """A method of a window function without rows must not contain a yield, because it would not run."""

    def generator(self, *_):
        yield

    generator.__qualname__ = f"Yielding.{method}"
    function = type("Yielding", (Yielding,), {method: generator})()
    reason = rf"Yielding\.{method} gives no rows, .* leave the yield out"
    with pytest.raises(errors.UserFunctionError, match=reason):
        played(TENS.reduce(add, int, "n", function))
