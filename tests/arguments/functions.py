"""Targets: local runs, the harness, and objects that functions get: contexts, timers, raw output."""

from datetime import timedelta

import millpond as mp
from millpond.functions.functions import ReadOnlyBroadcastState
from millpond.functions.metric_group import MetricGroup

from tests.arguments.calling import call, kept
from tests.arguments.making import (
    AGGREGATING,
    FOLDING,
    LIST,
    MAP,
    REDUCING,
    SORTED_MAP,
    VALUE,
    Pair,
    Rules,
    Total,
    fresh,
    harness,
    savepoint,
    second,
)  # fmt: skip

__all__ = ["TARGETS"]

TIME = {"timestamp": lambda: 5}
ROW = {"row": lambda: {"k": "a"}, **TIME}


class KeepFrame(mp.VectorizedProcessFunction):
    """Function that keeps the context of a frame and the frame's keys."""

    @classmethod
    def idle(cls):
        """Return a function that does nothing."""
        function = cls()
        function.call = lambda context: None
        return function

    def process_batch(self, rows, context):
        """Run the test's call within the frame."""
        self.call(context)


def in_frame(method):
    """Return a method of a frame's context, which is called within the frame."""

    def run(**given):
        function = KeepFrame()
        function.call = lambda context: getattr(context, method)(**given)
        with mp.testing.KeyedOperatorHarness(function, key="k") as running:
            try:
                running.process({"k": "a"})
            except mp.errors.UserFunctionError as error:
                raise error.__cause__ from None

    return run


def batch_harness():
    """Return a harness of a vectorized function."""
    return kept(mp.testing.KeyedOperatorHarness(KeepFrame.idle(), key="k")).__enter__()


class Keep(mp.KeyedBroadcastProcessFunction, mp.CheckpointedFunction):
    """Function that keeps each object that it gets, by class."""

    def __init__(self):
        self.given = {}

    def keep(self, given):
        """Keep an object."""
        self.given[type(given).__name__] = given

    def initialize_state(self, context):
        self.keep(context)

    def open(self, context):
        self.keep(context)

    def process_element(self, row, context):
        self.keep(context)
        self.keep(context.timer_service())
        self.keep(context.get_broadcast_state(mp.MapStateDescriptor("rules", str, int)))
        context.timer_service().register_processing_time_timer(5)

    def process_broadcast_element(self, row, context):
        self.keep(context)

    def snapshot_state(self, context):
        self.keep(context)
        self.keep(context.raw_operator_output)
        context.raw_keyed_output.start_new_key_group(0)
        self.keep(context.raw_keyed_output)


def given(name):
    """Return a function that gets an object of a class as a running function does."""

    def make():
        function = Keep()
        running = kept(mp.testing.KeyedOperatorHarness(function, key="k")).__enter__()
        running.process_broadcast({"k": "b"})
        running.process({"k": "a"})
        running.snapshot()
        return function.given[name]

    return make


class KeepPlain(mp.ProcessFunction):
    """Function that keeps the context of a row without a key."""

    def process_element(self, row, context):
        self.context = context


def plain_context():
    """Return the context of a function without keys."""
    function = KeepPlain()
    kept(mp.testing.KeyedOperatorHarness(function)).__enter__().process({"k": "a"})
    return function.context


def readable():
    """Return a broadcast map as keyed rows see it."""
    return ReadOnlyBroadcastState(mp.open_operator_backend().get_broadcast_state(MAP))


def method_targets(kind, methods):
    """Return targets for the methods of objects that functions get."""
    return {f"{kind}.{method}": (call(given(kind), method), good)
            for method, good in methods.items()}  # fmt: skip


FUNCTION = {
    "key": lambda: "k", "key_type": lambda: str, "backend": lambda: "heap", "config": mp.Config,
}  # fmt: skip
TIMER = {"domain": lambda: mp.TimeDomain.EVENT_TIME, **TIME, "namespace": lambda: mp.VOID_NAMESPACE}
NAMESPACED = {"descriptor": lambda: VALUE, "namespace": lambda: 1, "namespace_type": lambda: int}

TARGETS = {
    "run": (
        mp.local.run,
        {"function": Total, "rows": lambda: [{"k": "a", "t": 1}], **FUNCTION,
         "clock": lambda: mp.ManualClock(0), "event_time": lambda: "t",
         "watermark_delay": lambda: 0, "on_error": lambda: "side_output",
         "null_event_times": lambda: "drop", "idle_timeout": lambda: 5},
    ),
    "run [restored]": (
        mp.local.run,
        {"function": Total, "rows": lambda: [{"k": "a", "t": 1}], **FUNCTION,
         "restore": savepoint, "uid": lambda: "job"},
    ),
    "run [vectorized]": (
        mp.local.run,
        {"function": KeepFrame.idle, "rows": lambda: [{"k": "a", "t": 1}], **FUNCTION,
         "event_time": lambda: "t", "watermark_delay": lambda: 0, "frame_rows": lambda: 5},
    ),
    "run [broadcast]": (
        mp.local.run,
        {"function": Rules, "rows": lambda: [{"k": "a", "t": 1}], **FUNCTION,
         "broadcast": lambda: [{"k": "b", "t": 1}], "broadcast_event_time": lambda: "t"},
    ),
    "run [two inputs]": (
        mp.local.run,
        {"function": Pair, "rows": lambda: [{"k": "a", "t": 1}], **FUNCTION,
         "second": lambda: [{"k": "b", "t": 1}], "second_key": lambda: "k",
         "second_event_time": lambda: "t"},
    ),
    "IntervalJoin": (
        mp.IntervalJoin,
        {"left_type": lambda: "k string", "right_type": lambda: "k string", "lower": lambda: 0,
         "upper": lambda: 5, "how": lambda: "inner"},
    ),
    "AsOfJoin": (
        mp.AsOfJoin,
        {"left_type": lambda: "k string", "right_type": lambda: "k string",
         "how": lambda: "inner", "tolerance": lambda: 5},
    ),
    "LookupJoin": (
        mp.LookupJoin,
        {"right_type": lambda: "k string", "how": lambda: "inner",
         "ttl": lambda: mp.StateTtlConfig(timedelta(seconds=1))},
    ),
    "KeyedOperatorHarness": (
        lambda **given: mp.testing.KeyedOperatorHarness(**given).close(),
        {"function": Total, **FUNCTION, "max_parallelism": lambda: 128,
         "key_group_range": lambda: mp.KeyGroupRange(0, 127), "subtask": lambda: 0,
         "second_key": lambda: "k", "parallelism": lambda: 1, "restore": list, "clock_ms": lambda: 0,
         "on_error": lambda: "side_output", "null_event_times": lambda: "drop",
         "idle_timeout": lambda: 5},
    ),
    "KeyedOperatorHarness.process": (call(harness, "process"), ROW),
    "KeyedOperatorHarness.process_batch": (
        call(batch_harness, "process_batch"),
        {"rows": lambda: [{"k": "a"}], "timestamps": lambda: [5]},
    ),
    "VectorizedContext.timer_service": (in_frame("timer_service"), {"key": lambda: "a"}),
    **{f"KeyedOperatorHarness.{method}": (call(lambda: harness(Pair), method), ROW)
       for method in ("process1", "process2")},
    "KeyedOperatorHarness.process_broadcast": (
        call(lambda: harness(Rules), "process_broadcast"), ROW,
    ),
    "KeyedOperatorHarness.advance_watermark": (call(harness, "advance_watermark"),
                                               {"ms": lambda: 1}),
    "KeyedOperatorHarness.advance_processing_time": (call(harness, "advance_processing_time"),
                                                     {"ms": lambda: 1}),
    "KeyedOperatorHarness.savepoint": (call(harness, "savepoint"), {"path": lambda: fresh("saved")}),
    **method_targets("RuntimeContext", {
        **{f"get_{kind}state": {"descriptor": lambda each=each: each}
           for kind, each in (("", VALUE), ("list_", LIST), ("map_", MAP), ("sorted_map_", SORTED_MAP), ("reducing_", REDUCING),
                              ("aggregating_", AGGREGATING), ("folding_", FOLDING))},
        "get_namespaced_state": NAMESPACED,
        "get_job_parameter": {"key": lambda: "rate", "default_value": lambda: 1},
    }),
    "ProcessContext.get_broadcast_state": (
        call(plain_context, "get_broadcast_state"), {"descriptor": lambda: MAP},
    ),
    **method_targets("Context", {"get_broadcast_state": {"descriptor": lambda: MAP}}),
    **method_targets("BroadcastContext", {
        "get_broadcast_state": {"descriptor": lambda: MAP},
        "apply_to_keyed_state": {"descriptor": lambda: VALUE, "function": lambda: second},
    }),
    **method_targets("TimerService", {
        **{f"{verb}_{domain}_time_timer": TIME
           for verb in ("register", "delete") for domain in ("event", "processing")},
        "register": TIMER,
        "delete": TIMER,
    }),
    **method_targets("RawOperatorOutput", {"write": {"data": lambda: b"a"}}),
    **method_targets("RawKeyedOutput", {"write": {"data": lambda: b"a"},
                            "start_new_key_group": {"key_group": lambda: 1}}),
    **{f"MetricGroup.{method}": (call(MetricGroup, method), {"name": lambda: "n"})
       for method in ("add_group", "counter", "distribution")},
    "MetricGroup.gauge": (call(MetricGroup, "gauge"),
                          {"name": lambda: "n", "function": lambda: print}),
    "OutputTag": (mp.OutputTag, {"tag_id": lambda: "late", "type_info": lambda: "k string"}),
    "ReadOnlyBroadcastState.contains": (call(readable, "contains"), {"key": lambda: "a"}),
}  # fmt: skip
