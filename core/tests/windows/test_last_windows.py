"""Consecutive rows in the same windows, and failures among them."""

import millpond as mp
import pytest
from millpond import errors, windows
from millpond.functions.row_conversion import as_row

SLIDING = windows.SlidingEventTimeWindows.of(10, 5)
TUMBLING = windows.TumblingEventTimeWindows.of(10)


def unlucky_sum(first, second):
    if second == 13:
        raise ValueError("unlucky")
    return first + second


def summed(assigner):
    return windows.window(assigner).reduce(unlucky_sum, int, "n")


def harness(function):
    return mp.testing.KeyedOperatorHarness(function, key="k")


def process_rows(opened, *rows):
    """Process rows as a worker does."""
    keyed = ((k, mp.assign_to_key_group(k, 128), as_row({"k": k, "n": n}), t) for k, n, t in rows)
    opened._operator.process_all(keyed, opened.output)


@pytest.mark.parametrize("assigner", [TUMBLING, SLIDING])
@pytest.mark.parametrize("then", "ab")
def test_a_row_after_one_that_fails_goes_to_its_own_key(assigner, then):
    """After a failing row, the earlier rows' changes remain, and the next row has its own key."""
    with harness(summed(assigner)) as failing, harness(summed(assigner)) as untroubled:
        process_rows(untroubled, ("a", 1, 6), ("a", 2, 7))
        with pytest.raises(errors.UserFunctionError, match=r"key 'a', row Row\(k='a', n=13\)"):
            process_rows(failing, ("a", 1, 6), ("a", 2, 7), ("a", 13, 8))
        for opened in (failing, untroubled):
            opened.process({"k": then, "n": 4}, 8)
            opened.advance_watermark(100)
        assert sorted(failing.output) == sorted(untroubled.output)


def test_what_a_failing_row_leaves_is_in_a_snapshot():
    """The changes of a failing row are stored at once, not with the next row."""
    with harness(summed(TUMBLING)) as opened:
        with pytest.raises(errors.UserFunctionError, match="unlucky"):
            process_rows(opened, ("a", 1, 6), ("a", 2, 7), ("a", 13, 8))
        handle = opened.snapshot()
    with mp.testing.KeyedOperatorHarness(summed(TUMBLING), key="k", restore=handle) as restored:
        restored.advance_watermark(100)
        assert restored.output == [("a", 0, 10, 3)]


class Around(mp.KeyedProcessFunction):
    """A user's function that contains a window operator."""

    def __init__(self, inner):
        self.inner = inner
        self.timer_namespace = inner.timer_namespace

    def open(self, context):
        self.inner.open(context)

    def process_element(self, row, context):
        return self.inner.process_element(row, context)

    def on_timer(self, timestamp, context):
        return self.inner.on_timer(timestamp, context)


def test_windows_inside_a_users_function_store_each_row():
    """Windows inside a user's function store each row, because they are not notified of the next key."""
    with harness(Around(summed(TUMBLING))) as opened:
        process_rows(opened, ("a", 1, 1), ("a", 2, 2), ("a", 4, 3), ("b", 8, 3), ("b", 9, 4))
        opened.advance_watermark(100)
        assert sorted(opened.output) == [("a", 0, 10, 7), ("b", 0, 10, 17)]


class Total(mp.AggregateFunction):
    """Aggregate function that sums the elements of an iterable."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + sum(value)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


def test_a_value_that_is_gone_through_once_serves_each_window():
    """An iterator as value is computed once per window."""
    function = windows.window(SLIDING).aggregate(Total(), int, value=lambda row: iter([row.n]))
    with harness(function) as opened:
        process_rows(opened, ("a", 1, 1), ("a", 2, 2), ("a", 3, 3))
        opened.advance_watermark(100)
        assert opened.output == [("a", -5, 5, 6), ("a", 0, 10, 6)]


class Wandering(windows.EventTimeTrigger):
    """Window function that leaves another key current in `clear`."""

    def clear(self, window, ctx):
        ctx.get_partitioned_state(mp.ValueStateDescriptor("own", int)).at("another")


class OncePerWindow(windows.ProcessWindowFunction):
    """Window function with a state of each window."""

    fired = mp.ValueStateDescriptor("fired", bool)

    def process(self, key, context, elements):
        context.window_state(self.fired).update(True)
        yield key, elements

    def clear(self, context):
        context.window_state(self.fired).clear()


def test_a_windows_function_clears_under_the_windows_key():
    """`clear` runs with the window's key, even if the trigger has selected another one."""
    windowing = windows.window(TUMBLING).trigger(Wandering())
    with harness(windowing.reduce(unlucky_sum, int, "n", OncePerWindow())) as opened:
        opened.process({"k": "a", "n": 1}, 1)
        opened.advance_watermark(100)
        assert opened.output == [("a", 1)]
        assert opened._backend.num_state_entries() == 0
