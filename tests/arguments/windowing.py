"""Targets: window assigners, triggers, windows, and what their functions are given."""

import millpond as mp
from millpond import windows

from arguments.calling import call, kept
from arguments.making import VALUE, Last, second

__all__ = ["TARGETS"]


def tumbling():
    """An assigner."""
    return windows.TumblingEventTimeWindows.of(10)


def windowing():
    """Windows that lack their function."""
    return windows.window(tumbling())


def used(make):
    """A function that makes an assigner and has it assign windows."""

    def assign(**given):
        assigner = make(**given)
        if not callable(getattr(assigner, "gap", None)):
            assigner.assign_windows({"t": 5}, 5)

    return assign


class Keep(windows.Trigger):
    """Keeps its context, and fires."""

    given = None

    def on_element(self, element, timestamp, context):
        type(self).given = context
        return windows.TriggerResult.FIRE


def contexts():
    """The contexts of a window's function and of its trigger."""
    kept_contexts = []

    class Function(windows.ProcessWindowFunction):
        def process(self, key, context, elements):
            kept_contexts.append(context)
            return []

    function = windowing().trigger(Keep()).process(Function(), int, lambda _: 1)
    running = kept(mp.testing.KeyedOperatorHarness(function, key="k")).__enter__()
    running.process({"k": "a"}, 5)
    return kept_contexts[0], Keep.given


TIMES = {"domain": lambda: mp.TimeDomain.EVENT_TIME, "timestamp": lambda: 5}
DESCRIPTOR = {"descriptor": lambda: VALUE}
SIZE = {"size": lambda: 10, "offset": lambda: 1}
SLIDE = {"size": lambda: 10, "slide": lambda: 5, "offset": lambda: 1}
BOTH = ("EventTimeWindows", "ProcessingTimeWindows")
SESSIONS = ("EventTimeSessionWindows", "ProcessingTimeSessionWindows")
FUNCTION = {"window_function": lambda: print}


def assigners():
    """Both ways to make each assigner."""
    for start, good in (("Tumbling", SIZE), ("Sliding", SLIDE)):
        for end in BOTH:
            cls = getattr(windows, start + end)
            yield cls.__name__, (used(cls), good)
            yield f"{cls.__name__}.of", (used(cls.of), good)
    for name in SESSIONS:
        cls = getattr(windows, name)
        yield name, (used(cls), {"gap": lambda: 10})
        yield f"{name}.with_gap", (used(cls.with_gap), {"gap": lambda: 10})
        yield f"{name}.with_dynamic_gap", (cls.with_dynamic_gap, {"gap": lambda: len})


TARGETS = {
    **dict(assigners()),
    "CountTrigger": (windows.CountTrigger, {"max_count": lambda: 2}),
    "CountTrigger.of": (windows.CountTrigger.of, {"max_count": lambda: 2}),
    "PurgingTrigger": (windows.PurgingTrigger, {"inner": windows.EventTimeTrigger}),
    "PurgingTrigger.of": (windows.PurgingTrigger.of, {"inner": windows.EventTimeTrigger}),
    "window": (windows.window, {"assigner": tumbling}),
    "Windowing.trigger": (call(windowing, "trigger"), {"trigger": windows.EventTimeTrigger}),
    "Windowing.allowed_lateness": (call(windowing, "allowed_lateness"), {"lateness": lambda: 5}),
    "Windowing.reduce": (
        call(windowing, "reduce"),
        {"reduce_function": lambda: second, "value_type": lambda: int, "value": lambda: "t",
         **FUNCTION},
    ),
    "Windowing.aggregate": (
        call(windowing, "aggregate"),
        {"aggregate_function": Last, "accumulator_type": lambda: int, **FUNCTION},
    ),
    "Windowing.process": (
        call(windowing, "process"),
        {**FUNCTION, "element_type": lambda: int, "value": lambda: "t"},
    ),
    "Windowing.side_output_late_data": (
        call(windowing, "side_output_late_data"), {"make": lambda: windows.LateRow},
    ),
    "WindowContext.window_state": (call(lambda: contexts()[0], "window_state"), DESCRIPTOR),
    "WindowContext.global_state": (call(lambda: contexts()[0], "global_state"), DESCRIPTOR),
    "TriggerContext.state": (call(lambda: contexts()[1], "state"), DESCRIPTOR),
    "TriggerContext.register": (call(lambda: contexts()[1], "register"), TIMES),
    "TriggerContext.delete": (call(lambda: contexts()[1], "delete"), TIMES),
    "TimeWindow.cover": (
        call(lambda: windows.TimeWindow(0, 5), "cover"),
        {"other": lambda: windows.TimeWindow(1, 2)},
    ),
    "TimeWindow.intersects": (
        call(lambda: windows.TimeWindow(0, 5), "intersects"),
        {"other": lambda: windows.TimeWindow(1, 2)},
    ),
    "LateRow": (windows.LateRow, {"row": lambda: 1}),
}  # fmt: skip
