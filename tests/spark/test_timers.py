"""Timers on Spark: by watermark and processing time, in streams and plain batches."""

import time

import millpond as mp
import pytest
from millpond import errors, windows
from millpond.spark import key_by

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

OUTPUT = "k string, t bigint, watermark bigint"


class Silence(mp.KeyedProcessFunction):
    """Function that yields a key, the time 10 s after its last row, and the watermark."""

    def open(self, context):
        self.last = context.get_state(mp.ValueStateDescriptor("last", int))

    def process_element(self, row, context):
        service = context.timer_service()
        if context.timestamp <= service.current_watermark():
            return [(row.k + " late", context.timestamp, service.current_watermark())]
        if self.last.value() is not None:
            service.delete_event_time_timer(self.last.value() + 10_000)
        self.last.update(context.timestamp)
        service.register_event_time_timer(context.timestamp + 10_000)
        return None

    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp, context.timer_service().current_watermark()


class Alarm(mp.KeyedProcessFunction):
    """Function that sets a processing-time timer 1 ms ahead for each row."""

    def process_element(self, row, context):
        service = context.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 1)

    def on_timer(self, timestamp, context):
        yield context.current_key, context.timer_service().current_processing_time() - timestamp, 0


class Hourly(mp.KeyedProcessFunction):
    """Function that sets a timer a number of hours ahead, and yields its key when it fires."""

    def process_element(self, row, context):
        service = context.timer_service()
        now = service.current_processing_time()
        service.register_processing_time_timer(now + row.hours * 3_600_000)

    def on_timer(self, timestamp, context):
        yield (context.current_key,)


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_event_time_timers_in_a_plain_batch(spark, job_conf, backend):
    """At the end of a plain DataFrame, every event-time timer that was not deleted fires."""
    job_conf(state_backend=backend)
    rows = [("a", 1), ("b", 5), ("a", 8)]
    df = spark.createDataFrame(rows, "k string, s bigint").selectExpr("k", "timestamp_seconds(s) t")
    out = key_by(df, "k").process(
        Silence(), output=OUTPUT, uid="silence", event_time="t", order_by="t"
    )
    assert sorted(row[:2] for row in out.collect()) == [("a", 18_000), ("b", 15_000)]


@pytest.fixture
def seconds(spark, tmp_path):
    """A source of keys and seconds since 1970."""
    return Files(spark, tmp_path / "in", "k string, s bigint")


def silences(source):
    rows = source.stream().selectExpr("k", "timestamp_seconds(s) t").withWatermark("t", "0 seconds")
    return key_by(rows, "k").process(Silence(), output=OUTPUT, uid="silence", order_by="t")


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_event_time_timers_of_a_query(spark, job_conf, seconds, tmp_path, backend):
    """Timers fire once the watermark of earlier batches has passed; late rows reach the function."""
    job_conf(state_backend=backend, parallelism=3)
    seconds.add(("a", 1), ("b", 5))
    seconds.add(("c", 12))
    seconds.add(("a", 4), ("d", 100))
    run(silences(seconds), tmp_path)
    assert output(spark, tmp_path) == [
        ("a", 11_000, 12_000),
        ("a late", 4_000, 12_000),
        ("b", 15_000, 100_000),
        ("c", 22_000, 100_000),
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize("parallelism", [2, 4])
def test_timers_are_rescaled(spark, job_conf, seconds, tmp_path, parallelism):
    """Subtasks without rows after a rescale fire the timers that they have taken over."""
    job_conf(state_backend="heap", parallelism=3)
    keys = [f"k{number}" for number in range(20)]
    seconds.add(*((key, 1) for key in keys))
    run(silences(seconds), tmp_path)
    job_conf(state_backend="heap", parallelism=parallelism)
    seconds.add(("one", 50))
    seconds.add(("one", 51))
    run(silences(seconds), tmp_path)
    assert output(spark, tmp_path) == sorted((key, 11_000, 50_000) for key in keys)


def test_processing_time_timers_of_an_idle_query(spark, job_conf, files, tmp_path):
    """A timer that the query's only row sets fires without another row."""
    job_conf(state_backend="rocksdb")
    files.add(("a", 1))
    alarms = key_by(files.stream(), "k").process(Alarm(), output=OUTPUT, uid="alarm")
    writer = alarms.writeStream.format("memory").queryName("alarms")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        deadline = time.monotonic() + 60
        while not spark.table("alarms").count() and time.monotonic() < deadline:
            assert query.exception() is None
        ((key, late, _),) = spark.table("alarms").collect()
    finally:
        query.stop()
    assert key == "a"
    assert late >= 1


def test_processing_time_and_all_available_input(spark, job_conf, files, tmp_path):
    """A query with `availableNow` ends with its input; timers wait for a run with input."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    alarms = key_by(files.stream(), "k").process(Alarm(), output=OUTPUT, uid="alarm")
    run(alarms, tmp_path)
    idle = run(alarms, tmp_path)
    assert [progress["numInputRows"] for progress in idle.recentProgress] in ([], [0])
    assert output(spark, tmp_path) == []
    files.add(("b", 1))
    run(alarms, tmp_path)
    assert [row[0] for row in output(spark, tmp_path)] == ["a"]


@pytest.mark.long
def test_timers_that_available_input_has_left(spark, job_conf, files, tmp_path):
    """Remaining timers wait for a row under any trigger, and then fire."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    alarms = key_by(files.stream(), "k").process(Alarm(), output=OUTPUT, uid="alarm")
    run(alarms, tmp_path)
    writer = alarms.writeStream.option("checkpointLocation", str(tmp_path / "query" / "checkpoint"))
    query = writer.format("parquet").option("path", str(tmp_path / "query" / "output")).start()
    try:
        query.processAllAvailable()
        assert output(spark, tmp_path) == []
        files.add(("b", 1))
        deadline = time.monotonic() + 60
        while len(output(spark, tmp_path)) < 2 and time.monotonic() < deadline:
            assert query.exception() is None
    finally:
        query.stop()
    assert [row[0] for row in output(spark, tmp_path)] == ["a", "b"]


def test_windows_of_processing_time_fire_once(spark, job_conf, files, tmp_path):
    """Windows of 1 ms over three rows of a batch fire once in the next batch, with all three."""
    job_conf(state_backend="heap")
    files.add(("a", 1), ("a", 2), ("a", 3))
    windowed = key_by(files.stream(), "k").window(windows.TumblingProcessingTimeWindows.of(1))
    out = windowed.reduce(
        int.__add__, int, "n", output="k string, start bigint, end bigint, n bigint", uid="sums"
    )
    run(out, tmp_path)
    assert output(spark, tmp_path) == []
    files.add(("b", 4))
    run(out, tmp_path)
    assert [(row[0], row[3]) for row in output(spark, tmp_path)] == [("a", 6)]


def test_processing_time_in_a_plain_batch(spark, job_conf):
    """At the end of a plain DataFrame, timers fire only if the clock has passed their time."""
    job_conf(state_backend="heap")
    df = spark.createDataFrame([("past", -1), ("future", 1)], "k string, hours int")
    out = key_by(df, "k").process(Hourly(), output="k string", uid="hourly")
    assert [row.k for row in out.collect()] == ["past"]


def test_the_time_mode_is_checked(job_conf, files):
    """Event time without a watermark, and an unknown time mode, are refused."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    stream = key_by(files.stream(), "k")
    for mode, reason in (("event-time", "withWatermark"), ("lunar", "expected one of event-time")):
        with pytest.raises(errors.ConfigError, match=reason):
            stream.process(Alarm(), output=OUTPUT, uid="alarm", time_mode=mode)


class Counting(mp.KeyedProcessFunction):
    """Function that yields a key and its number of rows."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        yield row.k, self.count.value(), 0


class Reminding(Counting):
    """The function `Counting` with a processing-time timer and, given a watermark, an event-time timer."""

    def __init__(self, watermark):
        self.watermark = watermark

    def process_element(self, row, context):
        yield from super().process_element(row, context)
        service = context.timer_service()
        service.register_processing_time_timer(1)
        if self.watermark:
            service.register_event_time_timer(3_000)

    def on_timer(self, timestamp, context):
        yield f"{context.current_key} {context.time_domain.value}", self.count.value(), timestamp


def counted(source, tmp_path, function, *, watermark):
    """Run a function over new input, as the same operator."""
    rows = source.stream().selectExpr("k", "timestamp_seconds(s) t")
    rows = rows.withWatermark("t", "0 seconds") if watermark else rows
    out = key_by(rows, "k").process(
        function,
        output=OUTPUT,
        uid="counted",
        order_by="t",
        time_mode="event-time" if watermark else None,
    )
    return run(out, tmp_path)


@pytest.mark.sample(1)
@pytest.mark.parametrize("watermark", [True, False])
def test_a_running_query_gets_timers_and_loses_them(spark, job_conf, seconds, tmp_path, watermark):
    """A function may gain and lose timers between starts; counts continue and timers fire."""
    job_conf(state_backend="heap", parallelism=2)
    seconds.add(("a", 1))
    counted(seconds, tmp_path, Counting(), watermark=watermark)
    seconds.add(("a", 2))
    seconds.add(("a", 4))
    seconds.add(("a", 5))
    counted(seconds, tmp_path, Reminding(watermark), watermark=watermark)
    seconds.add(("a", 6))
    counted(seconds, tmp_path, Counting(), watermark=watermark)
    rows = output(spark, tmp_path)
    assert [row for row in rows if row[0] == "a"] == [("a", n, 0) for n in range(1, 6)]
    assert ("a processing-time", 2, 1) in rows
    assert (("a event-time", 3, 3_000) in rows) == watermark
