"""Targets that need a Spark session."""

from datetime import timedelta
from pathlib import Path

import millpond as mp
from millpond import windows
from millpond.spark import (
    MetricsListener,
    configure,
    create_savepoint,
    key_by,
    operator,
    rescale,
    subtask_metrics,
)
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType

from tests.arguments.calling import call
from tests.arguments.making import Last, Rules, Total, fresh, second
from tests.arguments.searching import begun

__all__ = ["TARGETS", "run_query"]


def session():
    """Return the session."""
    return Query.session


def builder():
    """Return a session builder that creates nothing."""
    return SparkSession.builder


def rows():
    """Return a DataFrame that is not streaming."""
    return session().createDataFrame([("a", 1)], "k string, n bigint")


def stream():
    """Return a streaming DataFrame."""
    source = session().readStream.format("rate").load()
    return source.withWatermark("timestamp", "1 second")


def keyed():
    """Return keyed rows that are not streaming."""
    return key_by(rows(), "k")


def timed():
    """Return keyed rows with an event time."""
    return key_by(rows().selectExpr("*", "timestamp_seconds(n) AS at"), "k")


def others():
    """Return other keyed rows with an event time."""
    return key_by(rows().selectExpr("k", "n AS m", "timestamp_seconds(n) AS then"), "k")


def connected():
    """Return the same rows, connected with broadcast rows."""
    return keyed().connect(rows())


class Plain(mp.ProcessFunction):
    """Function without keys."""

    def process_element(self, row, context):
        yield row


def outputs():
    """Return an operator's output with side outputs."""
    return keyed().process(Total(), output="k string", uid="odd")


def windowed():
    """Return windows of a stream."""
    return key_by(stream(), "value").window(windows.TumblingEventTimeWindows.of(10))


def columns_named(name):
    """Return a schema that contains a name; the name itself if it is not a string."""
    if not isinstance(name, str):
        return name
    return StructType().add(name, LongType())


class Counted(Total):
    """Function that yields one row per row."""

    def process_element(self, row, context):
        return [(key,) for key in super().process_element(row, context)]


class Query:
    """A finished query, for functions that read checkpoints."""

    session = None
    checkpoint = None


def run_query(spark, folder):
    """Run a small query, and remember its checkpoint."""
    Query.session = spark
    source, target, checkpoint = (str(folder / name) for name in ("in", "out", "checkpoint"))
    rows().write.parquet(source)
    made = key_by(session().readStream.schema("k string, n bigint").parquet(source), "k").process(
        Counted(), output="k string", uid="of-arguments", time_mode="processing-time"
    )
    writer = made.writeStream.format("parquet").option("path", target)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()
    Query.checkpoint = checkpoint


def checkpoint():
    """Return the query's checkpoint."""
    return Query.checkpoint


READ = {"spark": session, "checkpoint": checkpoint, "batch_id": lambda: 0}
OUT = {"output": lambda: "k string", "uid": lambda: "odd"}
PROCESS = {
    "function": Total,
    **OUT,
    "output_mode": lambda: "append",
    "event_time": lambda: None,
    "order_by": tuple,
    "time_mode": lambda: None,
    "execution_mode": lambda: "streaming",
    "on_error": lambda: "side_output",
    "null_event_times": lambda: "refuse",
    "idle_timeout": lambda: 5,
}
WINDOWS = {"value_type": lambda: int, "value": lambda: "value", "window_function": lambda: print}

TARGETS = {
    "configure": (
        lambda **given: configure(**given),
        {"target": builder, "parallelism": lambda: 2},
    ),
    "configure [settings]": (
        lambda settings: configure(builder(), parallelism=2, checkpoint_dir=settings),
        {"settings": lambda: Path("/snapshots")},
    ),
    "configure [session]": (
        lambda settings: configure(session().newSession(), parallelism=2, checkpoint_dir=settings),
        {"settings": lambda: Path("/snapshots")},
    ),
    "key_by": (
        lambda df, keys, null_keys: key_by(df, keys, null_keys=null_keys),
        {"df": rows, "keys": lambda: "k", "null_keys": lambda: "drop"},
    ),
    "KeyedStream.window": (
        call(keyed, "window"), {"assigner": lambda: windows.TumblingEventTimeWindows.of(10)},
    ),
    "KeyedStream.count_window": (
        call(keyed, "count_window"), {"size": lambda: 5, "slide": lambda: 2},
    ),
    "KeyedStream.connect": (
        call(keyed, "connect"),
        {"other": rows, "order_by": lambda: "n", "event_time": lambda: None,
         "in_time_order": lambda: False},
    ),
    "KeyedStream.connect [keyed]": (
        call(keyed, "connect"), {"other": keyed, "order_by": lambda: "n"},
    ),
    "KeyedStream.interval_join": (
        lambda **given: timed().interval_join(event_time="at", **given),
        {"right": others, "lower": lambda: 0, "upper": lambda: 5, "how": lambda: "inner",
         "uid": lambda: "odd", "right_event_time": lambda: "then"},
    ),
    "KeyedStream.as_of_join": (
        lambda **given: timed().as_of_join(event_time="at", **given),
        {"right": others, "how": lambda: "inner", "tolerance": lambda: 5, "uid": lambda: "odd",
         "right_event_time": lambda: "then"},
    ),
    "KeyedStream.lookup_join": (
        call(keyed, "lookup_join"),
        {"table": others, "how": lambda: "inner", "uid": lambda: "odd",
         "ttl": lambda: mp.StateTtlConfig(timedelta(seconds=1)), "table_event_time": lambda: "then"},
    ),
    "operator": (operator, {"df": rows}),
    "OperatorStream.connect": (
        call(lambda: operator(rows()), "connect"),
        {"other": rows, "order_by": lambda: "n", "event_time": lambda: None},
    ),
    "OperatorStream.process": (
        call(lambda: operator(rows()), "process"),
        {"function": Plain, **OUT, "output_mode": lambda: "append", "event_time": lambda: None,
         "order_by": tuple, "on_error": lambda: "side_output", "null_event_times": lambda: "refuse"},
    ),
    "KeyedStream.process": (call(keyed, "process"), PROCESS),
    "KeyedStream.process [columns]": (
        lambda output: keyed().process(Total(), output=columns_named(output), uid="odd"),
        {"output": lambda: "k"},
    ),
    "KeyedStream.process [stream]": (
        call(lambda: key_by(stream(), "value"), "process"),
        {**PROCESS, "event_time": lambda: "timestamp", "time_mode": lambda: "event-time",
         "idle_timeout": lambda: None},
    ),
    "KeyedStream.process [broadcast]": (
        call(connected, "process"), {**OUT, "function": Rules},
    ),
    **{
        f"OperatorOutput.{method}": (
            lambda method=method, **given: getattr(outputs(), method)(*given.values()),
            {given: lambda: mp.OutputTag("late")},
        )
        for method, given in (("side_output", "tag"), ("with_side_outputs", "tags"))
    },
    **{
        f"KeyedStream.{method}": (call(keyed, method), {"function": lambda: print, **OUT})
        for method in ("map", "flat_map")
    },
    **{
        f"KeyedStream.{method}": (
            call(keyed, method), {"function": lambda: print, "uid": lambda: "odd"},
        )
        for method in ("filter", "reduce")
    },
    **{
        f"KeyedStream.{method}": (
            call(keyed, method), {"field": lambda: "n", "uid": lambda: "odd"},
        )
        for method in ("sum", "min", "max", "min_by", "max_by")
    },
    "WindowedStream.trigger": (call(windowed, "trigger"), {"trigger": windows.EventTimeTrigger}),
    "WindowedStream.allowed_lateness": (call(windowed, "allowed_lateness"), {"lateness": lambda: 5}),
    "WindowedStream.side_output_late_data": (
        lambda column: windowed().side_output_late_data(column).reduce(
            second, int, "value", output="k bigint", uid="late"),
        {"column": lambda: "late"},
    ),
    "WindowedStream.reduce": (
        call(windowed, "reduce"), {"reduce_function": lambda: second, **WINDOWS, **OUT},
    ),
    "WindowedStream.aggregate": (
        call(windowed, "aggregate"),
        {"aggregate_function": Last, "accumulator_type": lambda: int,
         "window_function": lambda: print, "element_type": lambda: int,
         "value": lambda: "value", **OUT},
    ),
    "WindowedStream.evictor": (
        call(windowed, "evictor"), {"evictor": lambda: windows.CountEvictor.of(2)},
    ),
    "WindowedStream.process": (
        call(windowed, "process"),
        {"window_function": lambda: print, "element_type": lambda: int, "value": lambda: "value",
         **OUT},
    ),
    "KeyedStream.pattern": (call(keyed, "pattern"), {"pattern": begun}),
    **{
        f"PatternStream.{method}": (
            call(lambda: keyed().pattern(begun()).in_processing_time(), method),
            {"function": lambda: print, **OUT},
        )
        for method in ("select", "flat_select")
    },
    "PatternStream.side_output_late_data": (
        call(lambda: keyed().pattern(begun()), "side_output_late_data"),
        {"tag": lambda: mp.OutputTag("late")},
    ),
    "PatternStream.side_output_timed_out": (
        call(lambda: keyed().pattern(begun()), "side_output_timed_out"),
        {"tag": lambda: mp.OutputTag("late"), "select": lambda: print},
    ),
    "subtask_metrics": (subtask_metrics, READ),
    "create_savepoint": (
        create_savepoint,
        {**READ, "target": lambda: fresh("saved"), "snapshots": lambda: None},
    ),
    "rescale": (rescale, {"spark": session, "checkpoint": checkpoint, "parallelism": lambda: 2, "snapshots": lambda: None}),
    "MetricsListener": (MetricsListener, {"spark": session, "report": lambda: print}),
}  # fmt: skip
