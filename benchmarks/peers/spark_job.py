"""One job of the comparison on Spark: with Millpond's backends, or with ``transformWithState``.

A micro-batch is one Parquet file of 100,000 rows, so that a checkpoint is taken about each second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import millpond as mp
import pyarrow as pa
import pyarrow.parquet as pq
import rows
from millpond.spark import configure, key_by
from millpond.windows import TumblingEventTimeWindows
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from rows import category, mark_first_row, minute
from typing_extensions import override

BATCH = 100_000
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
INPUT = "key string, amount double, number long, time timestamp"
OUTPUT = {
    "sum": "key string, total double",
    "window": "key string, start long, end long, total double",
    "map": "key string, count long",
    "timer": "key string, count long",
}
TRANSFORM_WITH_STATE = "transformWithState"


class _Marked:
    """Marks the first row of a process; holds the folder for it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder


class Sum(_Marked, mp.KeyedProcessFunction):
    """A running total per key."""

    @override
    def open(self, context: mp.RuntimeContext) -> None:
        """Get the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", float))

    @override
    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Add the amount."""
        mark_first_row(self.folder)
        total = (self.total.value() or 0.0) + row.amount
        self.total.update(total)
        yield row.key, total


class Map(_Marked, mp.KeyedProcessFunction):
    """Counts per category in a map state."""

    @override
    def open(self, context: mp.RuntimeContext) -> None:
        """Get the state."""
        self.counts = context.get_map_state(mp.MapStateDescriptor("counts", int, int))

    @override
    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Count the row."""
        mark_first_row(self.folder)
        each = category(row.number)
        count = (self.counts.get(each) or 0) + 1
        self.counts.put(each, count)
        yield f"{row.key} {each}", count


class Timer(_Marked, mp.KeyedProcessFunction):
    """A count per key that a timer at the end of each minute emits."""

    @override
    def open(self, context: mp.RuntimeContext) -> None:
        """Get the state."""
        self.count = context.get_state(mp.ValueStateDescriptor("count", int))

    @override
    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Count the row and set the timer."""
        mark_first_row(self.folder)
        self.count.update((self.count.value() or 0) + 1)
        context.timer_service().register_event_time_timer(minute(row.number))
        return []

    @override
    def on_timer(self, timestamp: int, context: mp.Context) -> Iterable[Any]:
        """Emit the count."""
        yield f"{context.current_key} {timestamp}", self.count.value()


class _Processor(_Marked, StatefulProcessor):
    """A job on ``transformWithState``; a subclass handles the rows of a key."""

    schema = "value double"

    @override
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.state: Any = handle.getValueState("state", self.schema)

    @override
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        raise NotImplementedError

    @override
    def close(self) -> None:
        pass


class SumProcessor(_Processor):
    """A running total per key."""

    @override
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        mark_first_row(self.folder)
        total = self.state.get()[0] if self.state.exists() else 0.0
        for row in rows:
            total += row.amount
            yield Row(key=key[0], total=total)
        self.state.update((total,))


class MapProcessor(_Processor):
    """Counts per category in a map state."""

    @override
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getMapState("counts", "category int", "count long")

    @override
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        mark_first_row(self.folder)
        for row in rows:
            each = (category(row.number),)
            count = (self.state.getValue(each)[0] if self.state.containsKey(each) else 0) + 1
            self.state.updateValue(each, (count,))
            yield Row(key=f"{key[0]} {each[0]}", count=count)


class TimerProcessor(_Processor):
    """A count per key that a timer at the end of each minute emits."""

    schema = "value long"

    @override
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        mark_first_row(self.folder)
        count = self.state.get()[0] if self.state.exists() else 0
        for row in rows:
            count += 1
            self.handle.registerTimer(minute(row.number))
        self.state.update((count,))
        yield from ()

    @override
    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        minute_end = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(key=f"{key[0]} {minute_end}", count=self.state.get()[0])


PROCESSORS = {"sum": SumProcessor, "map": MapProcessor, "timer": TimerProcessor}
FUNCTIONS: dict[str, Any] = {"sum": Sum, "map": Map, "timer": Timer}


class Add(_Marked):
    """Adds the amounts of two rows of a window."""

    def __call__(self, left: float, right: float) -> float:
        """Return the sum."""
        mark_first_row(self.folder)
        return left + right


def millpond_job(stream: DataFrame, job: str, folder: str) -> DataFrame:
    """Return the job on Millpond; the session names the backend."""
    keyed = key_by(stream, "key")
    if job != "window":
        return keyed.process(FUNCTIONS[job](folder), output=OUTPUT[job], uid=job)
    windows = keyed.window(TumblingEventTimeWindows.of(rows.WINDOW))
    return windows.reduce(Add(folder), float, "amount", output=OUTPUT[job], uid=job)


def transform_with_state(stream: DataFrame, job: str, folder: str) -> DataFrame:
    """Return the job on Spark's own Python state."""
    mode = "EventTime" if job == "timer" else "None"
    return stream.groupBy("key").transformWithState(
        PROCESSORS[job](folder), OUTPUT[job], "Append" if job == "timer" else "Update", mode
    )


def session(variant: str, folder: str) -> SparkSession:
    """Return a local session with two cores."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.streaming.stateStore.providerClass", PROVIDER)
    )
    configure(builder, parallelism=2, checkpoint_dir=f"file://{folder}/checkpoints")
    if variant != TRANSFORM_WITH_STATE:
        builder.config("spark.millpond.state.backend", variant)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def write_input(folder: Path, count: int) -> None:
    """Write the rows, one file per micro-batch."""
    folder.mkdir()
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        table = {
            "key": pa.array(map(rows.key, numbers)),
            "amount": pa.array(map(rows.amount, numbers)),
            "number": pa.array(numbers, pa.int64()),
            "time": pa.array(numbers, pa.int64()).cast(pa.timestamp("ms", "UTC")),
        }
        pq.write_table(pa.table(table), folder / f"{start:012d}.parquet")


def main() -> None:
    """Run the job."""
    options = rows.parse_arguments()
    cloudpickle.register_pickle_by_value(rows)  # type: ignore[no-untyped-call]
    source = Path(options.folder, "input")
    write_input(source, options.rows)
    rows.mark(options.folder, "begin")
    spark = session(options.engine, options.folder)
    stream = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source.as_uri())
    if options.job in ("window", "timer"):
        stream = stream.withWatermark("time", "0 seconds")
    make = transform_with_state if options.engine == TRANSFORM_WITH_STATE else millpond_job
    result = make(stream, options.job, options.folder)
    if options.show:
        folder, job = options.folder, options.job

        def write(frame: DataFrame, _: int) -> None:
            if job == "window":
                frame = frame.select(F.concat_ws(" ", "key", F.col("end").cast("string")), "total")
            for row in frame.collect():
                rows.show(folder, tuple(row))

        writer = result.writeStream.foreachBatch(write)
    else:
        writer = result.writeStream.format("noop")
    updates = options.engine == TRANSFORM_WITH_STATE and options.job != "timer"
    (
        writer.outputMode("update" if updates else "append")
        .option("checkpointLocation", f"{options.folder}/query")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main()
