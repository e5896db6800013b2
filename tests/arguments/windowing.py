"""Targets: window assigners, triggers, windows, and objects that their functions get."""

import millpond as mp
from millpond import windows

from tests.arguments.calling import call, kept
from tests.arguments.making import VALUE, Last, second

__all__ = ["TARGETS"]


def tumbling():
    """Return an assigner."""
    return windows.TumblingEventTimeWindows.of(10)


def windowing():
    """Return windows without their function."""
    return windows.window(tumbling())


def used(make):
    """Return a function that creates an assigner and assigns windows."""

    def assign(**given):
        assigner = make(**given)
        if not callable(getattr(assigner, "gap", None)):
            assigner.assign_windows({"t": 5}, 5)

    return assign


class Keep(windows.Trigger):
    """Trigger that keeps its context, and fires."""

    given = None

    def on_element(self, element, timestamp, window, ctx):
        type(self).given = ctx
        return windows.TriggerResult.FIRE


def contexts():
    """Return the contexts of a window function and of its trigger."""
    kept_contexts = []

    class Function(windows.ProcessWindowFunction):
        def process(self, key, context, elements):
            kept_contexts.append(context)
            return []

    function = windowing().trigger(Keep()).process(Function(), int, lambda _: 1)
    running = kept(mp.testing.KeyedOperatorHarness(function, key="k")).__enter__()
    running.process({"k": "a"}, 5)
    return kept_contexts[0], Keep.given


DESCRIPTOR = {"descriptor": lambda: VALUE}
STATE_DESCRIPTOR = {"state_descriptor": lambda: VALUE}
DELTA = {
    "threshold": lambda: 1.5, "delta_function": lambda: second, "element_type": lambda: int,
    "value": lambda: "t",
}  # fmt: skip
TIMEOUT = {
    "inner": windows.EventTimeTrigger, "timeout": lambda: 5,
    "reset_timer_on_new_record": lambda: True, "should_clear_on_timeout": lambda: True,
}  # fmt: skip
SIZE = {"size": lambda: 10, "offset": lambda: 1}
SLIDE = {"size": lambda: 10, "slide": lambda: 5, "offset": lambda: 1}
BOTH = ("EventTimeWindows", "ProcessingTimeWindows")
SESSIONS = ("EventTimeSessionWindows", "ProcessingTimeSessionWindows")
FUNCTION = {"window_function": lambda: print}


def assigners():
    """Return both ways to create each assigner."""
    zoned = {**SIZE, "time_zone": lambda: "Europe/Berlin"}
    for start, good in (("Tumbling", zoned), ("Sliding", SLIDE)):
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
    **{
        f"{cls.__name__}{door}": (make, {"interval": lambda: 5})
        for cls in (windows.ContinuousEventTimeTrigger, windows.ContinuousProcessingTimeTrigger)
        for door, make in (("", cls), (".of", cls.of))
    },
    "DeltaTrigger": (windows.DeltaTrigger, DELTA),
    "DeltaTrigger.of": (windows.DeltaTrigger.of, DELTA),
    "ProcessingTimeoutTrigger": (windows.ProcessingTimeoutTrigger, TIMEOUT),
    "ProcessingTimeoutTrigger.of": (windows.ProcessingTimeoutTrigger.of, TIMEOUT),
    "PurgingTrigger": (windows.PurgingTrigger, {"inner": windows.EventTimeTrigger}),
    "PurgingTrigger.of": (windows.PurgingTrigger.of, {"inner": windows.EventTimeTrigger}),
    "window": (windows.window, {"assigner": tumbling}),
    "count_window": (windows.count_window, {"size": lambda: 5, "slide": lambda: 2}),
    **{
        f"{cls.__name__}{door}": (make, {**good, "do_evict_after": lambda: True})
        for cls, good in (
            (windows.CountEvictor, {"max_count": lambda: 5}),
            (windows.TimeEvictor, {"size": lambda: 5}),
            (windows.DeltaEvictor,
             {"threshold": lambda: 1.5, "delta_function": lambda: second}),
        )
        for door, make in (("", cls), (".of", cls.of))
    },
    "TimestampedValue": (
        windows.TimestampedValue, {"timestamp": lambda: 5, "value": lambda: 1},
    ),
    "Windowing.evictor": (
        call(windowing, "evictor"), {"evictor": lambda: windows.CountEvictor.of(2)},
    ),
    "Windowing.trigger": (call(windowing, "trigger"), {"trigger": windows.EventTimeTrigger}),
    "Windowing.allowed_lateness": (call(windowing, "allowed_lateness"), {"lateness": lambda: 5}),
    "Windowing.reduce": (
        call(windowing, "reduce"),
        {"reduce_function": lambda: second, "value_type": lambda: int, "value": lambda: "t",
         **FUNCTION},
    ),
    "Windowing.aggregate": (
        call(windowing, "aggregate"),
        {"aggregate_function": Last, "accumulator_type": lambda: int, **FUNCTION,
         "element_type": lambda: int, "value": lambda: "t"},
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
    "OnMergeContext.merge_partitioned_state": (
        call(lambda: contexts()[1], "merge_partitioned_state"),
        {"state_descriptor": lambda: mp.ReducingStateDescriptor("merged", max, int)},
    ),
    **{
        f"{context}.{method}": (call(lambda: contexts()[1], method), arguments)
        for context in ("TriggerContext", "OnMergeContext")
        for method, arguments in {
            "register_event_time_timer": {"time": lambda: 5},
            "register_processing_time_timer": {"time": lambda: 5},
            "delete_event_time_timer": {"time": lambda: 5},
            "delete_processing_time_timer": {"time": lambda: 5},
            "get_partitioned_state": STATE_DESCRIPTOR,
        }.items()
    },
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
