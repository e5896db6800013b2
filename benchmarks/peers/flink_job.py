"""One job of the comparison on PyFlink; runs in PyFlink's own environment.

Variants: ``hashmap`` and ``rocksdb`` in process mode with PyFlink's defaults, ``hashmap-tuned``
and ``rocksdb-tuned`` with a state cache and a bundle of 100,000, ``hashmap-thread`` in thread mode.
"""

from __future__ import annotations

import os
import site
import sys
from typing import Any

import rows
from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import KeyedProcessFunction, ReduceFunction, WindowFunction
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import TumblingEventTimeWindows

PARALLELISM = 2
TUNED = {"python.state.cache-size": "100000", "python.fn-execution.bundle.size": "100000"}


class _Job(KeyedProcessFunction):
    """Base of the functions, which writes the output rows of a check."""

    def __init__(self, options: Any) -> None:
        self.folder, self.shown = options.folder, options.show

    def out(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return rows.show(self.folder, row) if self.shown else row


class Sum(_Job):
    """A running total per key."""

    def open(self, runtime_context: Any) -> None:
        """Get the state."""
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Add the amount."""
        total = (self.total.value() or 0.0) + value[1]
        self.total.update(total)
        yield self.out((value[0], total))


class Map(_Job):
    """Counts per category in a map state."""

    def open(self, runtime_context: Any) -> None:
        """Get the state."""
        self.counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", Types.INT(), Types.LONG())
        )

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Count the row."""
        each = rows.category(value[2])
        count = (self.counts.get(each) or 0) + 1
        self.counts.put(each, count)
        yield self.out((f"{value[0]} {each}", count))


class Timer(_Job):
    """A count per key that a timer at the end of each minute emits."""

    def open(self, runtime_context: Any) -> None:
        """Get the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Count the row and set the timer."""
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(rows.minute(ctx.timestamp()))
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        """Emit the count."""
        yield self.out((f"{ctx.get_current_key()} {timestamp}", self.count.value()))


class Add(ReduceFunction):
    """Adds the amounts of two rows of a window."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        """Add the amounts."""
        return value1[0], value1[1] + value2[1], value1[2]


class Fired(WindowFunction):
    """Emits a window's total with its end."""

    def __init__(self, options: Any) -> None:
        self.folder, self.shown = options.folder, options.show

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        """Emit the total."""
        row = (f"{key} {window.end}", next(iter(inputs))[1])
        yield rows.show(self.folder, row) if self.shown else row


class EventTime(TimestampAssigner):
    """Takes the row's number as its event time in ms."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time."""
        return int(value[2])


def environment(variant: str, folder: str) -> StreamExecutionEnvironment:
    """Return an environment with the variant's settings and a checkpoint each second."""
    backend, _, mode = variant.partition("-")
    config = Configuration()
    for name, value in {
        "state.backend.type": backend,
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.interval": "1 s",
        "restart-strategy.type": "none",
        "python.executable": sys.executable,
        # The interpreter inside the JVM does not know the environment.
        "python.pythonpath": ":".join(site.getsitepackages()),
        "python.execution-mode": "thread" if mode == "thread" else "process",
        "rest.bind-address": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "jobmanager.bind-host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        **(TUNED if mode == "tuned" else {}),
    }.items():
        config.set_string(name, value)
    made = StreamExecutionEnvironment.get_execution_environment(config)
    made.set_parallelism(PARALLELISM)
    made.add_python_file(rows.__file__)
    return made


def main() -> None:
    """Run the job."""
    # As on a cluster; by default a local job runs all its Python functions in this process.
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112 - its name
    options = rows.parse_arguments()
    environ = environment(options.engine, options.folder)
    half = (options.rows + 1) // 2

    def row(number: int) -> tuple[str, float, int]:
        """Interleave the source's two halves, so that event time advances in both subtasks."""
        rows.mark_first_row(options.folder)
        each = 2 * number if number < half else 2 * (number - half) + 1
        return rows.key(each), rows.amount(each), each

    kind = Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()])
    stream = environ.from_source(
        NumberSequenceSource(0, options.rows - 1), WatermarkStrategy.no_watermarks(), "numbers"
    ).map(row, kind)
    if options.job in ("window", "timer"):
        monotonous = WatermarkStrategy.for_monotonous_timestamps()
        stream = stream.assign_timestamps_and_watermarks(
            monotonous.with_timestamp_assigner(EventTime())
        )
    keyed = stream.key_by(lambda each: each[0], Types.STRING())
    if options.job == "window":
        windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(rows.WINDOW)))
        out = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
        result = windows.reduce(Add(), Fired(options), out)
    else:
        value = Types.DOUBLE() if options.job == "sum" else Types.LONG()
        function = {"sum": Sum, "map": Map, "timer": Timer}[options.job](options)
        result = keyed.process(function, Types.TUPLE([Types.STRING(), value]))
    drop = environ._j_stream_execution_environment.getClass().getClassLoader()  # noqa: SLF001
    sink = drop.loadClass("org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink")
    result._j_data_stream.sinkTo(sink.getDeclaredConstructor(None).newInstance(None))  # noqa: SLF001
    environ.execute(f"{options.job} on {options.engine}")


if __name__ == "__main__":
    main()
