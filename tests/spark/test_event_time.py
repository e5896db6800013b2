"""Event time needs a watermark, and processing time a time mode: no timer waits forever unnoticed."""

import time
from itertools import product

import millpond as mp
import pytest
from millpond import errors, windows
from millpond.spark import key_by, several_operators
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

SUMS = "k string, start bigint, end bigint, n bigint"
FIRED = "k string, t bigint"


def add(a, b):
    return a + b


@pytest.fixture
def source(spark, job_conf, tmp_path):
    """A source with two files of one key, whose rows are ten seconds apart."""
    job_conf(state_backend="heap", parallelism=2)
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    files.add(("a", 1, 1), ("a", 11, 2))
    files.add(("a", 21, 3))
    return files


def rows(source):
    return source.stream().selectExpr("k", "timestamp_seconds(s) t", "n")


def marked(source):
    return rows(source).withWatermark("t", "0 seconds")


def stale(source):
    """A stream with the schema of a file that a query with a watermark has written."""
    place = str(source.folder.parent / "stale")
    writer = marked(source).writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{place}-query").start(place).awaitTermination()
    schema = source.spark.read.parquet(place).schema
    assert "spark.watermarkDelayMs" in schema["t"].metadata
    return source.spark.readStream.schema(schema).parquet(place)


UNMARKED = {
    "never": rows,
    "computed": lambda source: marked(source).withColumn("t", F.expr("t + interval 1 second")),
    "cast": lambda source: marked(source).withColumn("t", F.expr("cast(string(t) as timestamp)")),
    "dropped": lambda source: marked(source).selectExpr("k", "current_timestamp() t", "n"),
    "second side": lambda source: rows(source).union(marked(source)),
    "operator": lambda source: key_by(rows(source), "k").filter(bool, uid="before"),
    "stale": stale,
}
ASSIGNERS = {
    "tumbling": windows.TumblingEventTimeWindows.of(10_000),
    "sliding": windows.SlidingEventTimeWindows.of(10_000, 5_000),
    "session": windows.EventTimeSessionWindows.with_gap(3_000),
}


class Sum(mp.AggregateFunction):
    """Aggregate function that sums numbers of rows."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value.n

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


FUNCTIONS = {
    "reduce": lambda windowed, **named: windowed.reduce(add, int, "n", output=SUMS, **named),
    "aggregate": lambda windowed, **named: windowed.aggregate(Sum(), int, output=SUMS, **named),
    "process": lambda windowed, **named: windowed.process(
        lambda key, window, held: [(key, *window, len(held))],
        int,
        lambda row: row.n,
        output=SUMS,
        **named,
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("lost", UNMARKED)
def test_windows_of_event_time_without_a_watermark(source, lost):
    """Event-time windows without a watermark are refused when they are created, however it was lost."""
    df = UNMARKED[lost](source)
    for assigner, function, named in product(ASSIGNERS.values(), FUNCTIONS.values(), (True, False)):
        windowed = key_by(df, "k").window(assigner)
        options = {"event_time": "t"} if named else {}
        with pytest.raises(errors.NoWatermarkError, match="'sums': windows of event") as caught:
            function(windowed, uid="sums", **options)
        assert "withWatermark(" in str(caught.value)
        assert caught.value.column == ("t" if named or lost == "stale" else "")


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ASSIGNERS)
def test_such_windows_in_a_plain_batch(source, kind):
    """A plain DataFrame needs no watermark for event-time windows, in any time mode."""
    df = source.spark.read.schema(source.schema).json(str(source.folder))
    df = df.selectExpr("k", "timestamp_seconds(s) t", "n")
    windowed = key_by(df, "k").window(ASSIGNERS[kind])
    for function in FUNCTIONS.values():
        out = function(windowed, uid="sums", event_time="t", time_mode="event-time")
        assert sum(row.n for row in out.collect()) >= 3


class Timing(mp.KeyedProcessFunction):
    """Function that sets a timer of one kind for each row, and yields it when it fires."""

    def __init__(self, domain="event"):
        self.domain = domain

    def set(self, service):
        getattr(service, f"register_{self.domain}_time_timer")(5_000)

    def process_element(self, row, context):
        self.set(context.timer_service())

    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp


class TimingByFrames(Timing, mp.VectorizedProcessFunction):
    """Vectorized function that sets a timer of one kind for each row."""

    def process_batch(self, rows, context):
        for key, _ in context.groups():
            self.set(context.timer_service(key))

    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp


class TimingTwo(Timing, mp.KeyedCoProcessFunction):
    """Function of two inputs that sets a timer of one kind for each row."""

    process_element1 = process_element2 = Timing.process_element


class TimingBeside(Timing, mp.KeyedBroadcastProcessFunction):
    """Broadcast function that sets a timer of one kind for each row."""

    def process_broadcast_element(self, row, context):
        return None


class OddTrigger(windows.Trigger):
    """Trigger that sets timers of the other kind than its windows."""

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer(5_000)
        return windows.TriggerResult.CONTINUE


def timing(keyed, function, **options):
    return keyed.process(function, output=FIRED, uid="timing", **options)


def clocked(keyed, trigger):
    windowed = keyed.window(windows.TumblingProcessingTimeWindows.of(1_000)).trigger(trigger)
    return windowed.reduce(add, int, "n", output=SUMS, uid="timing")


UNTIMED = {
    "rows": lambda s: timing(key_by(rows(s), "k"), Timing()),
    "a column": lambda s: timing(key_by(rows(s), "k"), Timing(), event_time="t"),
    "processing time": lambda s: timing(
        key_by(rows(s), "k"), Timing(), time_mode="processing-time"
    ),
    "stale": lambda s: timing(key_by(stale(s), "k"), Timing()),
    "frames": lambda s: timing(key_by(rows(s), "k"), TimingByFrames()),
    "two": lambda s: timing(key_by(rows(s), "k").connect(key_by(rows(s), "k")), TimingTwo()),
    "broadcast": lambda s: timing(key_by(rows(s), "k").connect(marked(s)), TimingBeside()),
    "trigger": lambda s: clocked(key_by(rows(s), "k"), windows.EventTimeTrigger.create()),
    "own trigger": lambda s: clocked(key_by(rows(s), "k"), OddTrigger()),
    "after an operator": lambda s: timing(
        key_by(key_by(rows(s), "k").filter(bool, uid="before"), "k"), Timing()
    ),
}


def failure(df, tmp_path, name="query"):
    """Return the message of a query that fails."""
    with pytest.raises(StreamingQueryException) as caught, several_operators():
        run(df, tmp_path, name=name)
    return str(caught.value)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", UNTIMED)
def test_event_time_timers_without_a_watermark(source, tmp_path, kind):
    """Without a watermark, the first event-time timer fails the query, with the message for windows."""
    said = failure(UNTIMED[kind](source), tmp_path)
    sentence = "Operator 'timing': timers and TTL of event time need a watermark"
    assert f"NoWatermarkError: {sentence}" in said
    assert "withWatermark(" in said
    assert ("'t'" in said.split(sentence)[1].split("has none")[0]) == (
        kind in ("a column", "stale")
    )


@pytest.mark.long
def test_a_watermark_on_either_keyed_input_serves_both(source, spark, tmp_path):
    """Timers of a function of two inputs fire if one of the inputs has a watermark."""
    for at, (one, two) in enumerate([(rows, marked), (marked, rows)]):
        both = key_by(one(source), "k").connect(key_by(two(source), "k"))
        run(timing(both, TimingTwo()), tmp_path, name=f"query{at}")
        assert ("a", 5_000) in output(spark, tmp_path, f"query{at}")


@pytest.mark.sample(1)
@pytest.mark.parametrize("domain", ["event", "processing"])
def test_timers_of_a_state_that_would_not_fire_any_more(source, tmp_path, domain):
    """A restarted query whose restored timers could never fire fails with the reason."""
    first = {"time_mode": "event-time"} if domain == "processing" else {}
    late = Late(domain)
    run(timing(key_by(marked(source), "k"), late, **first), tmp_path)
    source.add(("b", 31, 4))
    again = key_by(rows(source) if domain == "event" else marked(source), "k")
    said = failure(timing(again, Late(domain, only="a")), tmp_path)
    assert {"event": "NoWatermarkError", "processing": "TimeModeError"}[domain] in said
    assert "'timing'" in said


class Late(Timing):
    """Function that sets a timer far in the future, only for some keys."""

    def __init__(self, domain, only=""):
        super().__init__(domain)
        self.only = only

    def process_element(self, row, context):
        if not self.only or row.k == self.only:
            service = context.timer_service()
            getattr(service, f"register_{self.domain}_time_timer")(1 << 50)


@pytest.mark.long
def test_processing_time_timers_and_a_watermark(source, spark, tmp_path):
    """On a stream with a watermark, the first processing-time timer fails without a time mode; with one it fires later."""
    keyed = key_by(marked(source), "k")
    said = failure(timing(keyed, Timing("processing")), tmp_path)
    assert "TimeModeError: Operator 'timing' sets a processing-time timer" in said
    assert "'processing-time' Spark runs batch after batch" in said
    for mode in ("event-time", "processing-time"):
        chosen = timing(keyed, Timing("processing"), time_mode=mode)
        run(chosen, tmp_path, name=mode)
        assert ("a", 5_000) in output(spark, tmp_path, mode)


def until_fired(spark, df, tmp_path, name):
    """Return the output of a query that has read its input and is idle, once there is some."""
    writer = df.writeStream.format("memory").queryName(name)
    query = writer.option("checkpointLocation", str(tmp_path / name)).start()
    try:
        deadline = time.monotonic() + 60
        while not spark.table(name).count() and time.monotonic() < deadline:
            assert query.exception() is None
        return sorted(map(tuple, spark.table(name).collect()))
    finally:
        query.stop()


CLOCKED = {
    "tumbling": windows.TumblingProcessingTimeWindows.of(1),
    "sliding": windows.SlidingProcessingTimeWindows.of(2, 1),
    "session": windows.ProcessingTimeSessionWindows.with_gap(1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", CLOCKED)
@pytest.mark.parametrize("watermark", [True, False])
def test_windows_of_processing_time_on_an_idle_stream(spark, job_conf, tmp_path, kind, watermark):
    """Windows of processing time fire on an idle stream, with and without a watermark."""
    job_conf(state_backend="heap", parallelism=2)
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    files.add(("a", 1, 5))
    df = marked(files) if watermark else rows(files)
    windowed = key_by(df, "k").window(CLOCKED[kind])
    out = windowed.reduce(add, int, "n", output=SUMS, uid="sums")
    name = f"idle_{kind}_{watermark}"
    assert ("a", 5) in [(row[0], row[3]) for row in until_fired(spark, out, tmp_path, name)]


def counted(df, **options):
    """Return windows of 100 ms of event time."""
    windowed = key_by(df, "k").window(windows.TumblingEventTimeWindows.of(100))
    return windowed.reduce(add, int, "n", output=SUMS, uid="sums", **options)


def until_written(spark, df, tmp_path, expected):
    """Run a query that goes on for ever, until it has written a row."""
    writer = df.writeStream.format("parquet").option("path", str(tmp_path / "query" / "output"))
    query = writer.option("checkpointLocation", str(tmp_path / "query" / "checkpoint")).start()
    try:
        deadline = time.monotonic() + 60
        while not query.lastProgress or expected not in output(spark, tmp_path):
            assert query.exception() is None
            assert time.monotonic() < deadline
    finally:
        query.stop()


def test_windows_of_event_time_on_an_idle_stream(spark, job_conf, tmp_path):
    """With an idle timeout, the last window of event time fires on an idle stream, also after a restart."""
    job_conf(state_backend="heap", parallelism=2)
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    files.add(("a", 100, 5), ("b", 50, 2))
    out = counted(marked(files), idle_timeout=100)
    until_written(spark, out, tmp_path, ("a", 100_000, 100_100, 5))
    files.add(("a", 200, 7))
    until_written(spark, out, tmp_path, ("a", 200_000, 200_100, 7))
    assert output(spark, tmp_path) == [
        ("a", 100_000, 100_100, 5),
        ("a", 200_000, 200_100, 7),
        ("b", 50_000, 50_100, 2),
    ]


def test_refused_idle_timeouts(source):
    """An idle timeout is refused if it is not positive, or if it would have no effect on the stream."""
    refused = [
        (marked, {"idle_timeout": 0}, "is not positive"),
        (marked, {"idle_timeout": "soon"}, "expected a timedelta"),
        (marked, {"idle_timeout": 5, "time_mode": "event-time"}, "needs time_mode='processing"),
    ]
    for df, options, words in refused:
        with pytest.raises(errors.ConfigError, match=words):
            counted(df(source), **options)
    with pytest.raises(errors.ConfigError, match="needs a watermark"):
        timing(key_by(rows(source), "k"), Timing(), idle_timeout=5)
    with pytest.raises(errors.ConfigError, match="has no on_timer"):
        key_by(marked(source), "k").filter(bool, uid="before", idle_timeout=5)


def test_both_kinds_of_timers_on_an_idle_stream(spark, job_conf, tmp_path):
    """With time_mode="processing-time" both kinds of timers fire on an idle stream with a watermark."""
    job_conf(state_backend="heap", parallelism=2)
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    files.add(("a", 100, 5))
    both = timing(key_by(marked(files), "k"), Both(), time_mode="processing-time")
    writer = both.writeStream.format("memory").queryName("both_timers")
    query = writer.option("checkpointLocation", str(tmp_path / "query")).start()
    try:
        deadline = time.monotonic() + 60
        while spark.table("both_timers").count() < 2 and time.monotonic() < deadline:
            assert query.exception() is None
        found = sorted(map(tuple, spark.table("both_timers").collect()))
    finally:
        query.stop()
    assert found == [("a", 5_000), ("a", 6_000)]


class Both(Timing):
    """Function that sets a timer of each kind."""

    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(5_000)
        context.timer_service().register_processing_time_timer(6_000)


def test_windows_of_rows_leave_an_idle_stream_alone(source):
    """Windows that count rows set no timers, so the stream keeps its time mode; their triggers may need one."""
    keyed = key_by(marked(source), "k")
    assert keyed.count_window(2).reduce(add, int, "n", output=SUMS, uid="rows").columns
