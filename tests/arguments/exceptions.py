"""What the walk finds and no test of arguments calls, by pattern, each with its reason."""

__all__ = ["EXCEPTIONS"]

USERS = "written by users and called by Millpond, which gives it what it has checked"
PLUGINS = "written by plugins and called by Millpond, which gives it what it has checked"
MADE = "made by Millpond and given to users, who need not make one"
INSIDE = "the inside of a backend or an operator, between parts of Millpond"
ROWS = "called by Millpond for each row or batch with what it has made itself"
RECORD = "a plain record that holds what its maker puts into it"

EXCEPTIONS = {
    "AggregateFunction.*": USERS,
    "CheckpointedFunction.*": USERS,
    "ListCheckpointed.*": USERS,
    "KeyedProcessFunction.*": USERS,
    "KeyedBroadcastProcessFunction.*": USERS,
    "ProcessWindowFunction.*": USERS,
    "Trigger.*": USERS,
    "*Trigger.on_*": USERS,
    "*Trigger.clear": USERS,
    "WindowAssigner.*": USERS,
    "*Windows.assign_windows": USERS,
    "TypeSerializer.*": PLUGINS,
    "PickleSerializer.*": PLUGINS,
    "KeyCodec.*": PLUGINS,
    "CheckpointStorage.*": PLUGINS,
    "FileWriter.*": PLUGINS,
    "Strategy.*": PLUGINS,
    "StateDescriptor": "the base class of the six descriptors, which are called",
    "StateDescriptor.*": "the base class of the six descriptors, whose methods are called",
    "*StateDescriptor.bound": INSIDE,
    "*StateDescriptor.resolved": INSIDE,
    "RuntimeContext": MADE,
    "Context": MADE,
    "BroadcastContext": MADE,
    "SnapshotContext": MADE,
    "StateInitializationContext": MADE,
    "TimerService": MADE,
    "WindowContext": MADE,
    "TriggerContext": MADE,
    "WindowOperator": MADE,
    "Windowing": MADE,
    "KeyedStream": MADE,
    "KeyedStateHandle": MADE,
    "OperatorStateHandle": MADE,
    "SubtaskMetrics": MADE,
    "OperatorMetrics": MADE,
    "SerializerSnapshot": RECORD,
    "Compatibility": RECORD,
    "Compatibility.of_snapshots": PLUGINS,
    "TimeWindow": RECORD,
    "WindowOperator.*": ROWS,
    "TimerService.advance_watermark": ROWS,
    "TimerService.end_key": ROWS,
    "StateTtlConfig.expired": ROWS,
    "Config.placed": INSIDE,
    "OperatorId.of": INSIDE,
    "State.set_current_namespace": "the interface of the six kinds of state, which are called",
    "MetricsListener.on*": "called by Spark with its events",
    "BroadcastState.set_current_namespace": "refused whatever the namespace: there are none",
    **{
        f"KeyedStateBackend.{name}": INSIDE
        for name in (
            "add_change_listener", "addresses", "cleanup_planned", "create_table",
            "create_timer_rows", "expect_states", "fail", "has_timers", "load_rows", "make_state",
            "migrate_rows", "report", "set_current_key_and_group", "strategy", "table_created",
            "table_of", "timer_queue", "works_in",
        )
    },
    **{
        f"{name}.*": INSIDE
        for name in (
            "CellTable", "Expiry", "MapTable", "OperatorRawHandle", "Origins", "PluginHooks",
            "StateMeta", "StateShape", "StateView", "StreamStateHandle", "TimerQueue", "TimerRows",
            "WorkingDirectory",
        )
    },
}  # fmt: skip
