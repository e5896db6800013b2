"""Jobs of the Spark Connect tests, run in processes of their own, in a client or in the server.

Each job uses the session of its process: a Connect session in a client, a classic one in the
server's process, which owns the JVM.
"""

import asyncio
import contextlib
import importlib
import io
import json
import logging
import os
import sys
import threading
from pathlib import Path

import millpond as mp
import pandas as pd
from millpond import windows
from millpond.errors import MillpondError
from millpond.patterns import Pattern
from millpond.spark import (
    MetricsListener,
    configure,
    create_savepoint,
    key_by,
    rescale,
    several_operators,
    subtask_metrics,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.documentation import pages
from tests.spark.quick import quick_settings
from tests.spark.streaming import RUNNING, Running

SERVER = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "FATAL",
    # A busy machine needs more than 15 s to start the workers of foreachBatch.
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.millpond.state.backend": "heap",
}
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


class Session:
    """The session of this process, classic or of Spark Connect."""

    spark = None


# ---------------------------------------------------------------- processes


def serve(warehouse):
    """Become a server of Spark Connect."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", warehouse)
    for key, value in {**SERVER, **quick_settings()}.items():
        builder = builder.config(key, value)
    Session.spark = builder.getOrCreate()


def connect(url):
    """Become a client of a server."""
    Session.spark = SparkSession.builder.remote(url).getOrCreate()


def run(job, *args, **named):
    """Run a job; return its result, or the class and text of the error."""
    try:
        return job(Session.spark, *args, **named)
    except MillpondError as error:
        return type(error), str(error)
    except Exception as error:
        if not type(error).__module__.startswith("pyspark."):
            raise
        return type(error).__name__, str(error)


def port(spark):
    """Return the server's port."""
    services = spark.sparkContext._jvm.org.apache.spark.sql.connect.service
    return getattr(getattr(services, "SparkConnectService$"), "MODULE$").localPort()


def listening(spark):
    """Return the addresses and ports on which the server's JVM listens, in the kernel's notation."""
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    links = []
    for each in Path(f"/proc/{jvm}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the JVM has closed it since it was listed
            links.append(str(each.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in links:
                address, _, number = columns[1].rpartition(":")
                found.add((address, int(number, 16)))
    return found


# ---------------------------------------------------------------- jobs


def page(spark, url, folder):
    """Return the output of the page of everyday use."""
    try:
        pages.run(
            "reference/spark.md",
            "connect",
            {"__name__": "__main__", "URL": url, "FOLDER": str(folder)},
        )
    finally:
        for key in ("parallelism", "checkpoint.dir"):
            spark.conf.unset(f"spark.millpond.{key}")


def batch(spark, mode):
    """Return the rows of a job over a plain DataFrame, whose function is pickled by value."""
    configure(spark, parallelism=2)

    class Longest(mp.KeyedProcessFunction):
        def open(self, context):
            self.longest = context.get_state(mp.ValueStateDescriptor("longest", int, default=0))

        def process_element(self, row, context):
            self.longest.update(max(self.longest.value(), row.n))
            yield context.current_key, self.longest.value()

    rows = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "k string, n bigint")
    out = key_by(rows, "k").process(
        Longest(), output="k string, n bigint", uid="longest", order_by="n", execution_mode=mode
    )
    return sorted(map(tuple, out.collect()))


def sorted_maps(spark, mode):
    """Return the rows of a job that keeps the two greatest numbers of a key in a sorted map."""
    configure(spark, parallelism=2)

    class Greatest(mp.KeyedProcessFunction):
        def open(self, context):
            descriptor = mp.SortedMapStateDescriptor("numbers", int, bool)
            self.numbers = context.get_sorted_map_state(descriptor)

        def process_element(self, row, context):
            self.numbers[row.n] = True
            yield context.current_key, [n for n, _ in self.numbers.range(reverse=True, limit=2)]

    rows = spark.createDataFrame([("a", 5), ("b", 2), ("a", 3), ("a", 4)], "k string, n bigint")
    out = key_by(rows, "k").process(
        Greatest(),
        output="k string, greatest array<bigint>",
        uid="greatest",
        order_by="n",
        execution_mode=mode,
    )
    return sorted(map(tuple, out.collect()))


class Locked(Running):
    """Function with an object that cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()


def unshippable(spark):
    """Build an operator with a function that cannot be pickled."""
    configure(spark, parallelism=2)
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    key_by(rows, "k").process(Locked(), output=RUNNING, uid="locked")


def lacking(spark, folder):
    """Return the error if the workers lack the function's module, and the rows once they have it."""
    configure(spark, parallelism=2)
    file = folder / "millpond_lacking_shop.py"
    file.write_text(
        "from tests.spark.streaming import Running\n\n\nclass Shop(Running):\n    pass\n"
    )
    sys.path.insert(0, str(folder))
    function = importlib.import_module(file.stem).Shop()
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    out = key_by(rows, "k").process(function, output=RUNNING, uid="shop")
    try:
        out.collect()
    except PySparkException as error:
        said = str(error)
    spark.addArtifacts(str(file), pyfile=True)
    return said, list(map(tuple, out.collect()))


def unnumbered(spark):
    """Build an operator without a configured parallelism."""
    spark.conf.unset("spark.millpond.parallelism")
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    key_by(rows, "k").process(Running(), output=RUNNING, uid="running")


def add(folder, *rows):
    """Write a file with rows for a streaming source, which makes a micro-batch."""
    folder = folder / "input"
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.iterdir()))
    text = "\n".join(json.dumps(row) for row in rows)
    file = folder / f"{number:04d}.json"
    file.write_text(text)
    os.utime(file, (number, number))  # Spark orders files by their times.


def _source(spark, folder, schema="k string, n bigint"):
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.json(str(folder / "input"))


def _write(df, folder, name="query", mode="append"):
    sink = "parquet" if mode == "append" else "noop"
    writer = df.writeStream.outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / name / "checkpoint"))
    query = writer.format(sink).option("path", str(folder / name / "output")).start()
    query.awaitTermination()


def _rows(spark, folder, name="query"):
    return sorted(map(tuple, spark.read.parquet(str(folder / name / "output")).collect()))


def _configure(spark, folder, parallelism, **settings):
    directory = (folder / "snapshots").as_uri()
    configure(spark, parallelism=parallelism, checkpoint_dir=directory, **settings)


def stream(spark, folder, parallelism, uid="running", **settings):
    """Return the running sums over all input so far."""
    name = settings.pop("name", "query")
    _configure(spark, folder, parallelism, **settings)
    keyed = key_by(_source(spark, folder), "k")
    try:
        _write(keyed.process(Running(), output=RUNNING, uid=uid), folder, name)
    finally:
        spark.conf.unset("spark.millpond.checkpoint.restore")
        spark.conf.set("spark.millpond.state.backend", "heap")
    return _rows(spark, folder, name)


class Answered(mp.KeyedAsyncFunction):
    """Function that counts and sums, and asks for each number in a call that the other key awaits."""

    open = Running.open

    async def async_open(self):
        self.asked = asyncio.Barrier(2)

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        n = yield self.ask(row.n)
        self.sum.update(self.sum.value() + n)
        yield context.current_key, self.count.value(), self.sum.value()

    async def ask(self, n):
        await self.asked.wait()
        return n


def async_calls(spark, folder):
    """Return the output of a query whose calls overlap."""
    _configure(spark, folder, 1)
    out = key_by(_source(spark, folder), "k").process(Answered(), output=RUNNING, uid="answered")
    _write(out, folder)
    return _rows(spark, folder)


class Refusing(Running):
    """Function that counts and sums, and then refuses negative numbers."""

    def process_element(self, row, context):
        yield from super().process_element(row, context)
        if row.n < 0:
            raise ValueError(f"{row.n} is negative")


def dead_letters(spark, folder):
    """Return the output of a query over all input, and the keys, rows and errors of its letters."""
    _configure(spark, folder, 2)
    out = key_by(_source(spark, folder), "k").process(
        Refusing(), output=RUNNING, uid="refusing", on_error="side_output"
    )
    _write(out.with_side_outputs(mp.DEAD_LETTERS), folder)
    written = spark.read.parquet(str(folder / "query" / "output"))
    letters = written.where("dead_letters is not null").selectExpr(
        "dead_letters.key", "dead_letters.row.n", "dead_letters.error"
    )
    main = written.where("dead_letters is null").drop("dead_letters")
    return sorted(map(tuple, main.collect())), sorted(map(tuple, letters.collect()))


def two_operators(spark, folder):
    """Start a query with two operators, in the block that allows it in classic sessions."""
    _configure(spark, folder, 1)
    first = key_by(_source(spark, folder), "k").process(Running(), output=RUNNING, uid="first")
    second = key_by(_source(spark, folder), "k").process(Running(), output=RUNNING, uid="second")
    with several_operators():
        _write(first.union(second), folder)


def start_from(spark, folder, parallelism, savepoint, name):
    """Return the output of a query that starts from a savepoint."""
    return stream(spark, folder, parallelism, name=name, checkpoint_restore=savepoint)


def divide(spark, folder, parallelism):
    """Rescale the query."""
    _configure(spark, folder, parallelism)
    rescale(spark, str(folder / "query" / "checkpoint"), parallelism)


def figures(spark, folder):
    """Return each subtask's number of rows in its last batch, by checkpoint and key groups."""
    metrics = subtask_metrics(spark, str(folder / "query" / "checkpoint"))
    return [(each.checkpoint_id, each.first_group, each.metrics["rows_in"]) for each in metrics]


def listen(spark):
    """Create a metrics listener."""
    MetricsListener(spark, print)


def save(spark, folder, target):
    """Write a savepoint; return what the data source reads from it and from the query."""
    checkpoint = str(folder / "query" / "checkpoint")
    create_savepoint(spark, checkpoint, target, snapshots=(folder / "snapshots").as_uri())
    reader = spark.read.format("millpond").option("state", "sum")
    saved = reader.load(str(target))
    snapshots = (folder / "snapshots").as_uri()
    live = reader.option("snapshots", snapshots).load(checkpoint)
    return [sorted((row["key"], row["value"]) for row in df.collect()) for df in (saved, live)]


class Alarm(mp.KeyedProcessFunction):
    """Function that yields a key when its timer fires."""

    def __init__(self, by_clock):
        self.by_clock = by_clock

    def process_element(self, row, context):
        timers = context.timer_service()
        if self.by_clock:
            timers.register_processing_time_timer(0)
        else:
            timers.register_event_time_timer(context.timestamp + 1)

    def on_timer(self, timestamp, context):
        yield (context.current_key,)


def alarms(spark, folder, by_clock, *, in_foreach_batch=False):
    """Return the keys whose timers have fired; batches without rows are on only if they end."""
    _configure(spark, folder, 2)
    df = _source(spark, folder, "k string, at timestamp").withWatermark("at", "0 seconds")
    mode = "processing-time" if by_clock else "event-time"
    spark.conf.set(NO_DATA, not by_clock)
    try:
        out = key_by(df, "k").process(
            Alarm(by_clock), output="k string", uid="alarm", time_mode=mode
        )
        if in_foreach_batch:
            return _each_batch(out, folder)
        _write(out, folder)
    finally:
        spark.conf.unset(NO_DATA)
    return _rows(spark, folder)


def _each_batch(out, folder):
    """Return the rows that ``foreachBatch`` collects."""
    said = folder / "said.jsonl"

    def each(df, batch_id):
        with said.open("a") as file:
            file.writelines(f"{json.dumps(tuple(row))}\n" for row in df.collect())

    writer = out.writeStream.foreachBatch(each).trigger(availableNow=True)
    _started(writer.option("checkpointLocation", str(folder / "each"))).awaitTermination()
    return [tuple(json.loads(line)) for line in said.read_text().splitlines()]


def warned(spark, folder, time_mode):
    """Return the log of an operator with timers that is built while batches without rows are on."""
    _configure(spark, folder, 2)
    df = _source(spark, folder, "k string, at timestamp").withWatermark("at", "0 seconds")
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("millpond.spark").addHandler(handler)
    key_by(df, "k").process(Alarm(True), output="k string", uid="alarm", time_mode=time_mode)
    logging.getLogger("millpond.spark").removeHandler(handler)
    return said.getvalue()


def windowed(spark, folder):
    """Return sums of windows."""
    _configure(spark, folder, 2)
    df = _source(spark, folder, "k string, at timestamp").withWatermark("at", "0 seconds")
    stream = key_by(df, "k").window(windows.TumblingEventTimeWindows.of(10_000))
    out = stream.process(
        Count(), str, lambda row: row.k, output="k string, n bigint", uid="windows"
    )
    _write(out, folder)
    return _rows(spark, folder)


def joined(spark, folder):
    """Return the rows of a left interval join of a stream with itself."""
    _configure(spark, folder, 2)
    df = _source(spark, folder, "k string, at timestamp").withWatermark("at", "0 seconds")
    other = _source(spark, folder, "k string, at timestamp").toDF("k", "then")
    out = key_by(df, "k").interval_join(
        key_by(other.withWatermark("then", "0 seconds"), "k"),
        lower=-60_000,
        upper=-1,
        how="left",
        uid="joined",
    )
    _write(out.selectExpr("k", "string(at)", "string(then)"), folder)
    return sorted(_rows(spark, folder), key=repr)


def searched(spark, folder):
    """Return the matches of a pattern by event time."""
    _configure(spark, folder, 2)
    df = _source(spark, folder, "k string, at timestamp").withWatermark("at", "0 seconds")
    pairs = key_by(df, "k").pattern(Pattern.begin("first").next("second").within(5_000))
    out = pairs.select(
        lambda match: (match["first"][0].k, match["second"][0].at.second),
        output="k string, second bigint",
        uid="pairs",
    )
    _write(out, folder)
    return _rows(spark, folder)


def behind_join(spark, folder):
    """Count rows in windows behind an outer join, which gives rows without a match late."""
    _configure(spark, folder, 2)
    rows = _source(spark, folder, "k string, at timestamp").withWatermark("at", "0 seconds")
    other = rows.toDF("other", "then")
    within = F.expr("k = other and then > at and then <= at + interval 1 minute")
    stream = key_by(rows.join(other, within, "left").select("k", "at"), "k")
    windowed = stream.window(windows.TumblingEventTimeWindows.of(10_000))
    out = windowed.process(
        Count(), str, lambda row: row.k, output="k string, n bigint", uid="behind", event_time="at"
    )
    _write(out, folder)
    return _rows(spark, folder)


def untimely(spark, folder, case):
    """Build a query that could yield no row, or not in this output mode."""
    _configure(spark, folder, 2)
    rows = _source(spark, folder, "k string, at timestamp")
    marked = rows.withWatermark("at", "0 seconds")
    stream = key_by(marked if case in ("behind", "mode") else rows, "k")
    windowed = stream.window(windows.TumblingEventTimeWindows.of(10_000))
    if case == "timers":
        out = stream.process(Alarm(False), output="k string", uid="timely", event_time="at")
    elif case == "clock":
        out = key_by(marked, "k").process(Alarm(True), output="k string", uid="timely")
    else:
        out = windowed.process(
            Count(),
            str,
            lambda row: row.k,
            output="k string, n bigint",
            uid="timely",
            event_time="at",
        )
    if case == "behind":
        out = out.selectExpr("k", "timestamp_millis(n) at").withWatermark("at", "0 seconds")
    _write(out, folder, mode="update" if case == "mode" else "append")


class Count(windows.ProcessWindowFunction):
    """Window function that counts rows."""

    def process(self, key, context, elements):
        yield key, len(list(elements))


class Greet(mp.KeyedBroadcastProcessFunction):
    """Function that joins rows to the last rule."""

    RULES = mp.MapStateDescriptor("rules", str, int)

    def process_broadcast_element(self, row, context):
        context.get_broadcast_state(self.RULES).put("rule", row.n)

    def process_element(self, row, context):
        yield row.k, context.get_broadcast_state(self.RULES).get("rule")


def _started(writer):
    """Start a query whose batches are passed to a function.

    Spark waits ten seconds for the function's process, which may take longer on a busy machine.
    """
    for _ in range(5):
        try:
            return writer.start()
        except PySparkException as error:
            late = error
            if "connect back" not in str(error):
                raise
    raise late


def broadcast(spark, folder):
    """Return rows joined to a rule, for each batch that a query passes on as a DataFrame."""
    _configure(spark, folder, 2)
    target = str(folder / "each")

    def each(df, batch_id):
        rules = df.sparkSession.createDataFrame([("rule", 7)], "k string, n bigint")
        out = key_by(df, "k").connect(rules)
        out = out.process(Greet(), output="k string, n bigint", uid="greet")
        out.write.mode("append").parquet(target)

    writer = _source(spark, folder).writeStream.foreachBatch(each).trigger(availableNow=True)
    query = _started(writer.option("checkpointLocation", str(folder / "each-checkpoint")))
    query.awaitTermination()
    return sorted(map(tuple, spark.read.parquet(target).collect()))


def plain_running(key, frames, state):
    """Return running counts and sums of a key, by a function for ``applyInPandasWithState``."""
    rows, total = state.get if state.exists else (0, 0)
    found = []
    for n in sorted(n for frame in frames for n in frame["n"]):
        rows, total = rows + 1, total + n
        found.append((key[0], rows, total))
    state.update((rows, total))
    yield pd.DataFrame(found, columns=["k", "rows", "sum"])


def _tuples(df):
    return sorted(map(tuple, df.collect()))


def _written(df, target):
    df.write.mode("overwrite").parquet(target)
    return _tuples(df.sparkSession.read.parquet(target))


def _cached(df):
    df.cache()
    try:
        return df.count(), _tuples(df)
    finally:
        df.unpersist()


def _in_threads(action):
    """Run an action in two new threads, one after the other."""
    found = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(action()))
        thread.start()
        thread.join()
    return found


ACTIONS = {
    "collect": lambda df, target: _tuples(df),
    "two writes": lambda df, target: [_written(df, f"{target}-{each}") for each in "ab"],
    "cache": lambda df, target: _cached(df),
    "count": lambda df, target: df.count(),
    "isEmpty": lambda df, target: (df.isEmpty(), df.count()),
    "limit": lambda df, target: (len(df.limit(1).collect()), df.count()),
    "toPandas": lambda df, target: len(df.toPandas()),
    "toLocalIterator": lambda df, target: len(list(df.toLocalIterator())),
    "threads": lambda df, target: _in_threads(lambda: _tuples(df)),
}


def each_action(spark, folder, name, *, plain):
    """Return the result of each action on the batches of ``foreachBatch``, for two kinds of operators."""
    _configure(spark, folder, 2)
    action, said = ACTIONS[name], folder / f"said-{plain}"

    def each(df, batch_id):
        result = action(df, str(folder / f"{plain}-{batch_id}"))
        with said.open("a") as file:
            file.write(f"{batch_id} {result!r}\n")

    source = _source(spark, folder)
    if plain:
        out = source.groupBy("k").applyInPandasWithState(
            plain_running, RUNNING, "rows bigint, sum bigint", "append", "NoTimeout"
        )
    else:
        out = key_by(source, "k").process(Running(), output=RUNNING, uid="running")
    writer = out.writeStream.foreachBatch(each).trigger(availableNow=True)
    checkpoint = str(folder / f"checkpoint-{plain}")
    _started(writer.option("checkpointLocation", checkpoint)).awaitTermination()
    return said.read_text()


class Misspelling(Running):
    def process_element(self, row, context):
        yield row.k, row.m, 1  # fails: misspelt


class Mistyping(Running):
    def process_element(self, row, context):
        if row.n < 0:
            yield row.k, 0, 0
        yield row.k, "one", 1  # fails: type


def failing_batch(spark, function):
    """Run a failing function over a plain DataFrame."""
    configure(spark, parallelism=2)
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    key_by(rows, "k").process(function, output=RUNNING, uid="totals").collect()


def without_keys(spark):
    """Run a function over a row with a null key."""
    configure(spark, parallelism=2)
    rows = spark.createDataFrame([(None, 1)], "k string, n bigint")
    keyed = key_by(rows, "k")
    keyed.process(Running(), output=RUNNING, uid="totals").collect()  # fails: null key


def failing_stream(spark, folder, function, **settings):
    """Run a streaming query that fails."""
    _configure(spark, folder, 1, **settings)
    _write(
        key_by(_source(spark, folder), "k").process(function, output=RUNNING, uid="totals"), folder
    )


def failing_each(spark, folder, function):
    """Run a query whose batches fail."""
    _configure(spark, folder, 1)

    def each(df, batch_id):
        key_by(df, "k").process(function, output=RUNNING, uid="totals").collect()  # fails: each

    writer = _source(spark, folder).writeStream.foreachBatch(each).trigger(availableNow=True)
    query = _started(writer.option("checkpointLocation", str(folder / "each-checkpoint")))
    query.awaitTermination()


def nowhere(spark, folder):
    """Run a streaming query without a directory for snapshots."""
    _configure(spark, folder, 1)
    spark.conf.set("spark.millpond.checkpoint.dir", "file:/proc/nowhere")
    keyed = key_by(_source(spark, folder), "k")
    _write(keyed.process(Running(), output=RUNNING, uid="totals"), folder)  # fails: nowhere
