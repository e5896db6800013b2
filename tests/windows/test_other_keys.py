"""If a part of a window operator selects another key, the operator continues with its own."""

from operator import add

import millpond as mp
import pytest
from millpond import windows
from millpond.windows import TriggerResult

TENS = windows.window(windows.TumblingEventTimeWindows.of(10))
ALL = mp.ReducingStateDescriptor("all", add, int)


class Totals(windows.ProcessWindowFunction):
    """Window function that adds to a total under a fixed key, when a window fires and when it ends."""

    def process(self, key, context, n):
        context.global_state(ALL).at("all").add(n)
        yield key, n

    def clear(self, context):
        context.global_state(ALL).at("all").add(100)


class Elsewhere(windows.Trigger):
    """Trigger that counts under a fixed key before it sets a timer, and leaves that key current."""

    seen = mp.ReducingStateDescriptor("seen", add, int)

    def __init__(self, result):
        self.result = result

    def on_element(self, element, timestamp, window, ctx):
        ctx.get_partitioned_state(self.seen).at("all").add(1)
        ctx.register_event_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(self.seen).at("all")
        return self.result

    def on_event_time(self, time, window, ctx):
        ctx.get_partitioned_state(self.seen).at("all").add(1)
        return TriggerResult.FIRE

    def on_merge(self, window, ctx):
        ctx.get_partitioned_state(self.seen).at("all").add(1)

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.seen).at("all").clear()


class Greedy(windows.Evictor):
    """Assigner or function that selects another key before and after its work."""

    state = None

    def evict_before(self, elements, window, ctx):
        self.state.at("all")
        return elements

    def evict_after(self, elements, window, ctx):
        self.state.at("all")
        return elements[:1]


class Lending(windows.ProcessWindowFunction):
    """Evictor that selects another key by a state."""

    of_key = mp.ValueStateDescriptor("of-key", str)

    def __init__(self, evictor):
        self.evictor = evictor

    def open(self, context):
        self.evictor.state = context.get_state(mp.ValueStateDescriptor("lent", str))

    def process(self, key, context, elements):
        context.global_state(self.of_key).update(key)
        yield key, elements


@pytest.fixture(params=["heap", "rocksdb", "lmdb"])
def played(request):
    """Return a function's output for two keys, and the final content of the states by key."""

    def play(function):
        opened = mp.testing.KeyedOperatorHarness(function, key="k", backend=request.param)
        with opened as harness:
            for key, n in (("a", 1), ("a", 2), ("b", 4)):
                harness.process({"k": key, "n": n}, 2 * n)
            harness.advance_watermark(30)
            backend = harness._backend
            left = {}
            for name in ("window-contents", "merging-windows", "all", "seen", "of-key"):
                keys = sorted({key for key, _ in backend.keys_and_namespaces(name)})
                left |= {name: keys} if keys else {}
            assert not any(harness._operator.timers.next_due())
            return sorted(harness.output), left

    return play


def test_a_function_that_chooses_another_key(played):
    """Windows are emptied and dropped under their own key."""
    wanted = [("a", 3), ("b", 4)], {"all": ["all"]}
    assert played(TENS.reduce(add, int, "n", Totals())) == wanted
    each = TENS.trigger(windows.PurgingTrigger.of(windows.CountTrigger.of(1)))
    wanted = [("a", 1), ("a", 2), ("b", 4)], {"all": ["all"]}
    assert played(each.reduce(add, int, "n", Totals())) == wanted


@pytest.mark.parametrize(
    "assigner",
    [windows.TumblingEventTimeWindows.of(10), windows.EventTimeSessionWindows.with_gap(8)],
)
def test_a_trigger_that_chooses_another_key(played, assigner):
    """A trigger's timers are set under the key of its row, also inside another trigger."""

    def window_row(key, window, total):
        return [(key, total)]

    for around in (
        lambda trigger: trigger,
        lambda trigger: windows.ProcessingTimeoutTrigger.of(trigger, 1000),
    ):
        windowing = windows.window(assigner)
        if not assigner.is_merging or around(Elsewhere(None)).can_merge():
            once = windowing.trigger(around(Elsewhere(TriggerResult.CONTINUE)))
            assert played(once.reduce(add, int, "n", window_row)) == ([("a", 3), ("b", 4)], {})
            each = windowing.trigger(around(Elsewhere(TriggerResult.FIRE_AND_PURGE)))
            found = played(each.reduce(add, int, "n", window_row))
            assert found == ([("a", 1), ("a", 2), ("b", 4)], {})


def test_an_evictor_that_chooses_another_key(played):
    """The function runs under the window's own key, and the remaining elements are stored there."""
    evictor = Greedy()
    windowing = TENS.trigger(windows.CountTrigger.of(1)).evictor(evictor)
    found = played(windowing.process(Lending(evictor), int, "n"))
    assert found == ([("a", [1]), ("a", [1, 2]), ("b", [4])], {"of-key": ["a", "b"]})
