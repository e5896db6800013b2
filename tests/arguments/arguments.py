"""The public functions with good arguments for each, and odd values to put in their place."""

import math
from datetime import timedelta
from pathlib import Path

import millpond as mp
from millpond import windows


class Count(int):
    """A subclass of int."""


class Name(str):
    """A subclass of str."""

    __slots__ = ()


ODD = {
    "None": None,
    "empty str": "",
    "empty bytes": b"",
    "zero": 0,
    "minus one": -1,
    "2**31": 1 << 31,
    "2**63": 1 << 63,
    "10**30": 10**30,
    "5,001 digits": 10**5000,
    "half": 0.5,
    "nan": math.nan,
    "inf": math.inf,
    "long": "x" * 10**6,
    "object": object(),
    "list": [],
    "dict": {},
    "nested": [[[None]]],
    "surrogate": "\ud800",
    "zero byte": "a\0b",
    "Path": Path("odd/place"),
    "bool": True,
    "int subclass": Count(3),
    "str subclass": Name("k"),
    "type": int,
    "bytes": b"\xff",
    "duration": timedelta.max,
}


class Total(mp.KeyedProcessFunction):
    """A function with a state and a timer."""

    def open(self, context):
        """Ask for the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", int, default=0))

    def process_element(self, row, context):
        """Add."""
        self.total.update(self.total.value() + 1)
        yield context.current_key


class Sum(mp.AggregateFunction):
    """A sum."""

    def create_accumulator(self):
        """Zero."""
        return 0

    def add(self, value, accumulator):
        """Add."""
        return value + accumulator

    def get_result(self, accumulator):
        """The sum."""
        return accumulator

    def merge(self, a, b):
        """Add."""
        return a + b


def plus(a, b):
    """Add."""
    return a + b


OPENED = []


def kept(closeable):
    """Something that is closed after the call."""
    OPENED.append(closeable)
    return closeable


def close_all():
    """Close what was opened for a call."""
    while OPENED:
        OPENED.pop().close()


def backend(**more):
    """A heap backend with a current key."""
    opened = kept(mp.open_keyed_backend("heap", key_type=str, clock=mp.ManualClock(0), **more))
    opened.set_current_key("alice")
    return opened


def state(descriptor):
    """A state of a new backend."""
    return backend().get_partitioned_state(descriptor)


def harness(**more):
    """An open harness."""
    return kept(mp.testing.KeyedOperatorHarness(Total(), key="k", **more)).__enter__()


def handle():
    """A snapshot."""
    opened = backend()
    opened.get_partitioned_state(mp.ValueStateDescriptor("total", int)).update(1)
    return opened.snapshot(1, mp.checkpoint_storage("memory:odd")).result().handle


def savepoint(folder="saved"):
    """A savepoint below the working directory."""
    opened = backend()
    opened.get_partitioned_state(mp.ValueStateDescriptor("total", int)).update(1)
    storage = mp.checkpoint_storage(Path(folder).absolute().as_uri())
    return storage.uri + "/" + opened.savepoint(1, storage).result().handle.folder


def snapshots():
    """A checkpoint directory below the working directory."""
    opened = backend(place="job")
    descriptor = mp.ValueStateDescriptor("total", int).set_queryable("totals")
    opened.get_partitioned_state(descriptor).update(1)
    uri = Path("snapshots").absolute().as_uri()
    opened.snapshot(1, mp.checkpoint_storage(uri)).result()
    return uri


VALUE = mp.ValueStateDescriptor("value", int)
LIST = mp.ListStateDescriptor("list", int)
MAP = mp.MapStateDescriptor("map", str, int)
REDUCING = mp.ReducingStateDescriptor("reducing", plus, int)
AGGREGATING = mp.AggregatingStateDescriptor("aggregating", Sum(), int)
FOLDING = mp.FoldingStateDescriptor("folding", 0, plus, int)
TTL = mp.StateTtlConfig(timedelta(seconds=1))
TIMES = {"timestamp": lambda: 5}


def services():
    """A timer service with a current key, inside of a harness."""
    found = []

    class Keep(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            found.append(context.timer_service())

        def on_timer(self, timestamp, context):
            return None

    running = kept(mp.testing.KeyedOperatorHarness(Keep(), key="k")).__enter__()
    running.process({"k": "a"})
    return found[0]


def call(make, method):
    """A function that calls a method of a fresh object."""

    def run(*args, **kwargs):
        return getattr(make(), method)(*args, **kwargs)

    return run


def consumed(make, method):
    """The same for a method that gives an iterator."""
    return lambda **kwargs: list(call(make, method)(**kwargs))


def tumbling():
    """An assigner."""
    return windows.TumblingEventTimeWindows.of(10)


# What is called, and a good value for each parameter.
TARGETS = {
    "open_keyed_backend": (
        lambda **given: mp.open_keyed_backend(**given).close(),
        {"backend": lambda: "heap", "key_type": lambda: str, "max_parallelism": lambda: 128,
         "key_group_range": lambda: mp.KeyGroupRange(0, 1), "directory": lambda: "state",
         "clock": lambda: mp.ManualClock(0), "config": mp.Config, "restore": list,
         "place": lambda: "job"},
    ),
    "open_operator_backend": (
        mp.open_operator_backend, {"restore": list, "place": lambda: "job", "config": mp.Config},
    ),
    "checkpoint_storage": (mp.checkpoint_storage, {"uri": lambda: "memory:x", "config": mp.Config}),
    "seal_savepoint": (mp.seal_savepoint, {"path": savepoint, "config": mp.Config}),
    "rekey_savepoint": (
        mp.rekey_savepoint,
        {"source": savepoint, "target": lambda: "rekeyed", "max_parallelism": lambda: 64,
         "config": mp.Config},
    ),
    "assign_to_key_group": (
        mp.assign_to_key_group,
        {"key": lambda: "a", "max_parallelism": lambda: 128, "key_type": lambda: str,
         "config": mp.Config},
    ),
    "default_max_parallelism": (mp.default_max_parallelism, {"parallelism": lambda: 4}),
    "key_group_range": (
        mp.key_group_range,
        {"max_parallelism": lambda: 128, "parallelism": lambda: 4, "index": lambda: 1},
    ),
    "KeyGroupRange": (mp.KeyGroupRange, {"start": lambda: 0, "end": lambda: 1}),
    "redistribute_operator_state": (
        mp.redistribute_operator_state,
        {"handles_by_subtask": lambda: [None], "new_parallelism": lambda: 2},
    ),
    "Config": (lambda options: mp.Config(options), {"options": dict}),
    "Config(parallelism)": (mp.Config, {"parallelism": lambda: 2, "max_parallelism": lambda: 128,
                                        "place": lambda: "here", "state": dict, "plugins": dict,
                                        "backend": dict}),
    "Config.from_toml": (mp.Config.from_toml, {"path": lambda: "none.toml"}),
    "Config.from_spark_conf": (mp.Config.from_spark_conf, {"items": list}),
    "ManualClock": (mp.ManualClock, {"now_ms": lambda: 0}),
    "ManualClock.advance": (call(mp.ManualClock, "advance"), {"ms": lambda: 1}),
    "ManualClock.set": (call(mp.ManualClock, "set"), {"ms": lambda: 1}),
    "ValueStateDescriptor": (
        lambda **given: state(mp.ValueStateDescriptor(**given)).value(),
        {"name": lambda: "x", "type": lambda: int, "default": lambda: 1},
    ),
    "ListStateDescriptor": (
        lambda **given: state(mp.ListStateDescriptor(**given)),
        {"name": lambda: "x", "element_type": lambda: int},
    ),
    "MapStateDescriptor": (
        lambda **given: state(mp.MapStateDescriptor(**given)),
        {"name": lambda: "x", "key_type": lambda: int, "value_type": lambda: int},
    ),
    "ReducingStateDescriptor": (
        lambda **given: state(mp.ReducingStateDescriptor(**given)),
        {"name": lambda: "x", "reduce_function": lambda: plus, "type": lambda: int},
    ),
    "AggregatingStateDescriptor": (
        lambda **given: state(mp.AggregatingStateDescriptor(**given)),
        {"name": lambda: "x", "aggregate_function": Sum, "accumulator_type": lambda: int},
    ),
    "FoldingStateDescriptor": (
        lambda **given: state(mp.FoldingStateDescriptor(**given)),
        {"name": lambda: "x", "initial": lambda: 0, "fold_function": lambda: plus,
         "type": lambda: int},
    ),
    "StateDescriptor.enable_time_to_live": (
        call(lambda: mp.ListStateDescriptor("x", int), "enable_time_to_live"),
        {"ttl_config": lambda: TTL},
    ),
    "StateDescriptor.set_queryable": (
        call(lambda: mp.ListStateDescriptor("x", int), "set_queryable"),
        {"query_name": lambda: "q"},
    ),
    "StateTtlConfig": (
        mp.StateTtlConfig,
        {"ttl": lambda: timedelta(1), "update_type": lambda: mp.UpdateType.ON_READ_AND_WRITE,
         "visibility": lambda: mp.StateVisibility.NEVER_RETURN_EXPIRED,
         "cleanup": mp.CleanupStrategies},
    ),
    "StateTtlConfig.new_builder": (mp.StateTtlConfig.new_builder, {"ttl": lambda: timedelta(1)}),
    **{
        f"StateTtlConfigBuilder.{method}": (
            call(lambda: mp.StateTtlConfig.new_builder(timedelta(1)), method), {name: good},
        )
        for method, name, good in (
            ("set_ttl", "ttl", lambda: timedelta(1)),
            ("set_update_type", "update_type", lambda: mp.UpdateType.ON_READ_AND_WRITE),
            ("set_state_visibility", "visibility",
             lambda: mp.StateVisibility.NEVER_RETURN_EXPIRED),
            ("cleanup_incrementally", "cleanup_size", lambda: 5),
        )
    },
    "CleanupStrategies": (
        mp.CleanupStrategies, {"in_background": lambda: True, "incremental_size": lambda: 5},
    ),
    "QueryableStateClient": (
        lambda **given: mp.QueryableStateClient(**given).close(),
        {"snapshots": snapshots, "operator": lambda: "job", "backend": lambda: "heap",
         "directory": lambda: "replica", "refresh_after_ms": lambda: 1, "config": mp.Config,
         "checkpoint": lambda: None},
    ),
    "QueryableStateClient.get": (
        call(lambda: kept(mp.QueryableStateClient(snapshots())), "get"),
        {"query_name": lambda: "totals", "key": lambda: "alice",
         "namespace": lambda: mp.VOID_NAMESPACE},
    ),
    "local.run": (
        mp.local.run,
        {"function": Total, "rows": lambda: [{"k": "a", "t": 1}], "key": lambda: "k",
         "backend": lambda: "heap", "key_type": lambda: str, "config": mp.Config,
         "clock": lambda: mp.ManualClock(0), "event_time": lambda: "t",
         "watermark_delay": lambda: 0, "broadcast": list},
    ),
    "KeyedOperatorHarness": (
        lambda **given: mp.testing.KeyedOperatorHarness(**given).close(),
        {"function": Total, "key": lambda: "k", "key_type": lambda: str,
         "backend": lambda: "heap", "max_parallelism": lambda: 128,
         "key_group_range": lambda: mp.KeyGroupRange(0, 127), "subtask": lambda: 0,
         "parallelism": lambda: 1, "restore": list, "clock_ms": lambda: 0, "config": mp.Config},
    ),
    "KeyedOperatorHarness.process": (
        call(harness, "process"), {"row": lambda: {"k": "a"}, "timestamp": lambda: 1},
    ),
    "KeyedOperatorHarness.advance_watermark": (call(harness, "advance_watermark"),
                                               {"ms": lambda: 1}),
    "KeyedOperatorHarness.advance_processing_time": (call(harness, "advance_processing_time"),
                                                     {"ms": lambda: 1}),
    "KeyedOperatorHarness.savepoint": (call(harness, "savepoint"), {"path": lambda: "of-harness"}),
    "KeyedStateHandle.from_json": (
        mp.KeyedStateHandle.from_json,
        {"text": lambda: handle().to_json(), "storage": lambda: mp.checkpoint_storage("memory:")},
    ),
    "OperatorStateHandle.from_json": (
        mp.OperatorStateHandle.from_json,
        {"text": lambda: "{}", "storage": lambda: mp.checkpoint_storage("memory:")},
    ),
    "backend.set_current_key": (call(backend, "set_current_key"), {"key": lambda: "a"}),
    "backend.get_partitioned_state": (
        call(backend, "get_partitioned_state"),
        {"descriptor": lambda: VALUE, "namespace": lambda: 1, "namespace_type": lambda: int},
    ),
    "backend.snapshot": (
        lambda **given: call(backend, "snapshot")(**given).result(),
        {"checkpoint_id": lambda: 1, "storage": lambda: mp.checkpoint_storage("memory:s"),
         "version": lambda: None},
    ),
    "backend.savepoint": (
        lambda **given: call(backend, "savepoint")(**given).result(),
        {"checkpoint_id": lambda: 1, "storage": lambda: mp.checkpoint_storage("memory:t")},
    ),
    "backend.keys": (consumed(backend, "keys"),
                     {"state_name": lambda: "x", "namespace": lambda: 1}),
    "backend.keys_and_namespaces": (consumed(backend, "keys_and_namespaces"),
                                    {"state_name": lambda: "x"}),
    "backend.apply_to_all_keys": (
        call(backend, "apply_to_all_keys"),
        {"descriptor": lambda: VALUE, "function": lambda: plus, "namespace": lambda: 1},
    ),
    "backend.notify_checkpoint_complete": (call(backend, "notify_checkpoint_complete"),
                                           {"checkpoint_id": lambda: 1}),
    "ValueState.update": (call(lambda: state(VALUE), "update"), {"value": lambda: 1}),
    "ListState.add": (call(lambda: state(LIST), "add"), {"value": lambda: 1}),
    "ListState.add_all": (call(lambda: state(LIST), "add_all"), {"values": lambda: [1]}),
    "ListState.update": (call(lambda: state(LIST), "update"), {"values": lambda: [1]}),
    "MapState.get": (call(lambda: state(MAP), "get"), {"key": lambda: "a", "default": lambda: 1}),
    "MapState.put": (call(lambda: state(MAP), "put"), {"key": lambda: "a", "value": lambda: 1}),
    "MapState.put_all": (call(lambda: state(MAP), "put_all"), {"entries": lambda: {"a": 1}}),
    "MapState.remove": (call(lambda: state(MAP), "remove"), {"key": lambda: "a"}),
    "MapState.contains": (call(lambda: state(MAP), "contains"), {"key": lambda: "a"}),
    "ReducingState.add": (call(lambda: state(REDUCING), "add"), {"value": lambda: 1}),
    "State.set_current_namespace": (call(lambda: state(VALUE), "set_current_namespace"),
                                    {"namespace": lambda: mp.VOID_NAMESPACE}),
    "MergingState.merge_namespaces": (
        call(lambda: backend().get_partitioned_state(LIST, 1), "merge_namespaces"),
        {"target": lambda: 1, "sources": lambda: [2]},
    ),
    "operator.get_list_state": (call(mp.open_operator_backend, "get_list_state"),
                                {"descriptor": lambda: LIST}),
    "operator.get_union_list_state": (call(mp.open_operator_backend, "get_union_list_state"),
                                      {"descriptor": lambda: LIST}),
    "operator.get_broadcast_state": (call(mp.open_operator_backend, "get_broadcast_state"),
                                     {"descriptor": lambda: MAP}),
    "operator.snapshot": (
        lambda **given: call(mp.open_operator_backend, "snapshot")(**given).result(),
        {"checkpoint_id": lambda: 1, "storage": lambda: mp.checkpoint_storage("memory:o")},
    ),
    **{
        f"TimerService.{kind}_{domain}_time_timer": (
            call(services, f"{kind}_{domain}_time_timer"), TIMES,
        )
        for kind in ("register", "delete")
        for domain in ("event", "processing")
    },
    **{
        f"windows.{name}.of": (
            getattr(windows, name).of, {"size": lambda: 10, "offset": lambda: 1},
        )
        for name in ("TumblingEventTimeWindows", "TumblingProcessingTimeWindows")
    },
    **{
        f"windows.{name}.of": (
            getattr(windows, name).of,
            {"size": lambda: 10, "slide": lambda: 5, "offset": lambda: 1},
        )
        for name in ("SlidingEventTimeWindows", "SlidingProcessingTimeWindows")
    },
    **{
        f"windows.{name}.with_gap": (getattr(windows, name).with_gap, {"gap": lambda: 10})
        for name in ("EventTimeSessionWindows", "ProcessingTimeSessionWindows")
    },
    **{
        f"windows.{name}.with_dynamic_gap": (
            getattr(windows, name).with_dynamic_gap, {"gap": lambda: len},
        )
        for name in ("EventTimeSessionWindows", "ProcessingTimeSessionWindows")
    },
    "windows.CountTrigger.of": (windows.CountTrigger.of, {"max_count": lambda: 2}),
    "windows.PurgingTrigger.of": (windows.PurgingTrigger.of, {"inner": windows.EventTimeTrigger}),
    "windows.window": (windows.window, {"assigner": tumbling}),
    "windows.Windowing.trigger": (call(lambda: windows.window(tumbling()), "trigger"),
                                  {"trigger": windows.EventTimeTrigger}),
    "windows.Windowing.allowed_lateness": (
        call(lambda: windows.window(tumbling()), "allowed_lateness"), {"lateness": lambda: 5},
    ),
    "windows.Windowing.reduce": (
        call(lambda: windows.window(tumbling()), "reduce"),
        {"reduce_function": lambda: plus, "value_type": lambda: int, "value": lambda: "t",
         "window_function": lambda: print},
    ),
    "windows.Windowing.aggregate": (
        call(lambda: windows.window(tumbling()), "aggregate"),
        {"aggregate_function": Sum, "accumulator_type": lambda: int,
         "window_function": lambda: print},
    ),
    "windows.Windowing.process": (
        call(lambda: windows.window(tumbling()), "process"),
        {"window_function": lambda: print, "element_type": lambda: int, "value": lambda: "t"},
    ),
    "windows.Windowing.side_output_late_data": (
        call(lambda: windows.window(tumbling()), "side_output_late_data"),
        {"make": lambda: windows.LateRow},
    ),
}  # fmt: skip


def complaint(target, odd):
    """What is wrong with how a call takes odd values, by parameter; None where nothing is.

    What is no error of Millpond's, TypeError or ValueError is raised.
    """
    if target == "local.run" and any(odd.get(name) is int for name in ("key", "event_time")):
        return None  # a callable like any other, which fails by itself
    function, good = TARGETS[target]
    given = {name: make() for name, make in good.items() if name not in odd}
    try:
        function(**given, **odd)
    except mp.errors.MillpondError as error:
        if not str(error) or len(str(error)) > 20_000:
            return f"{type(error).__name__} without a message of a sensible length"
    except (TypeError, ValueError) as error:
        if not any(name in str(error) for name in odd):
            return f"{type(error).__name__} without the parameter's name: {str(error)[:120]}"
    finally:
        close_all()
    return None
