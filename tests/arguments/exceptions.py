"""Public functions that no test of arguments calls, as patterns with a reason each."""

__all__ = ["EXCEPTIONS"]

USERS = "written by users and called by Millpond with checked arguments"
PLUGINS = "written by plugins and called by Millpond with checked arguments"
MADE = "created by Millpond; users do not call the constructor"
INSIDE = "internal to a backend or an operator"
ROWS = "called by Millpond for each row or batch with its own objects"
RECORD = "a plain record of values"

EXCEPTIONS = {
    "AggregateFunction.*": USERS,
    "CheckpointedFunction.*": USERS,
    "ListCheckpointed.*": USERS,
    "KeyedProcessFunction.*": USERS,
    "KeyedBroadcastProcessFunction.*": USERS,
    "KeyedFunction.*": USERS,
    "OperatorFunction.*": USERS,
    "ProcessFunction.*": USERS,
    "BroadcastProcessFunction.*": USERS,
    "VectorizedProcessFunction.*": USERS,
    "KeyedCoProcessFunction.*": USERS,
    "KeyedStateBootstrapFunction.*": USERS,
    "KeyedRows.*": INSIDE,
    "*.bootstrap": INSIDE,
    "*.bootstrap_config": INSIDE,
    "*.check_bootstrap": INSIDE,
    "SavepointWriter": "made by new_savepoint and from_existing, which are called",
    "SavepointWriter.from_existing_savepoint": "another name of from_existing",
    "SavepointWriter.change_operator_identifier": "another name of rename_operator",
    **dict.fromkeys(
        ("MapFunction.*", "FlatMapFunction.*", "FilterFunction.*", "ReduceFunction.*"), USERS
    ),
    "CheckpointListener.*": USERS,
    "Counter.*": "run for each row; a check would cost as much as the call",
    "Distribution.*": "run for each row; a check would cost as much as the call",
    "ProcessWindowFunction.*": USERS,
    "Trigger.*": USERS,
    "*Evictor.evict_*": USERS,
    "*Trigger.on_*": USERS,
    "*Trigger.clear": USERS,
    "WindowAssigner.*": USERS,
    "*Windows.assign_windows": USERS,
    "TypeSerializer.*": PLUGINS,
    "PickleSerializer.*": PLUGINS,
    "KeyCodec.*": PLUGINS,
    "CheckpointStorage.*": PLUGINS,
    "FileWriter.*": PLUGINS,
    "SnapshotFile.*": INSIDE,
    "Strategy.*": PLUGINS,
    "StateDescriptor": "the base class of the six descriptors, which are called",
    "StateDescriptor.*": "the base class of the six descriptors, whose methods are called",
    "*StateDescriptor.bind": INSIDE,
    "*StateDescriptor.resolved": INSIDE,
    "DeadLetter": MADE,
    "Journal.*": INSIDE,
    "RuntimeContext": MADE,
    "Context": MADE,
    "ProcessContext": MADE,
    "VectorizedContext": MADE,
    "BroadcastContext": MADE,
    "SnapshotContext": MADE,
    "StateInitializationContext": MADE,
    "TimerService": MADE,
    "WindowContext": MADE,
    "TriggerContext": MADE,
    "OnMergeContext": MADE,
    "EvictorContext": MADE,
    "WindowOperator": MADE,
    "Windowing": MADE,
    "KeyedStream": MADE,
    "OperatorStream": MADE,
    "Output.*": "a list's own, and of a checked tag",
    "OperatorOutput": MADE,
    "OperatorOutput.get_side_output": "another name of side_output",
    "KeyedStateHandle": MADE,
    "OperatorStateHandle": MADE,
    "SubtaskMetrics": MADE,
    "OperatorMetrics": MADE,
    "SerializerSnapshot": RECORD,
    "Compatibility": RECORD,
    "Compatibility.from_snapshots": PLUGINS,
    "TimeWindow": RECORD,
    "WindowOperator.*": ROWS,
    "TimerService.advance_watermark": ROWS,
    "TimerService.end_key": ROWS,
    "TimerService.namespace_bytes": ROWS,
    "StateTtlConfig.expired": ROWS,
    "Config.locating_errors": INSIDE,
    "OperatorId.from_text": INSIDE,
    "*State.append_many": INSIDE,
    "*State.read_many": INSIDE,
    "*State.write_many": INSIDE,
    "State.at": "the interface of the six kinds of state, which are called",
    "State.clear_many": "the interface of the six kinds of state, which are called",
    "State.set_current_namespace": "the interface of the six kinds of state, which are called",
    "MetricsListener.on*": "called by Spark with its events",
    "BroadcastState.set_current_namespace": "always refused: broadcast state has no namespaces",
    **{
        f"KeyedStateBackend.{name}": INSIDE
        for name in (
            "add_change_listener", "addresses", "cleanup_planned", "create_table",
            "create_timer_rows", "expect_states", "fail", "has_timers", "load_rows", "make_state", "write_changes",
            "migrate_rows", "readdress_rows", "report", "strategy", "table_created",
            "table_of", "timer_queue", "take_directory",
        )
    },
    **{
        f"{name}.*": INSIDE
        for name in (
            "CellTable", "ChosenKeys", "Expiry", "MapTable", "OptionSource", "PluginHooks",
            "StateMeta", "StateShape", "SubtaskKeys", "StateView", "FilePart", "TimerQueue", "TimerRows",
            "WorkingDirectory",
        )
    },
}  # fmt: skip
