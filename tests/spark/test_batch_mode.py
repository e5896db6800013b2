"""Batch execution: rows sorted by key, state for one key at a time, timers at the end of a key."""

import math

import millpond as mp
import pytest
from millpond import errors, windows
from millpond.operator.opening import open_batch_backend
from millpond.spark import key_by

from tests.spark.streaming import RUNNING, Running


class Farewell(mp.KeyedProcessFunction):
    """Function that counts a key's rows, and yields the count by timers of both kinds."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))
        self.parts = context.get_map_state(mp.MapStateDescriptor("parts", int, int))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        self.parts[row.n] = 1
        context.timer_service().register_event_time_timer(10**12)
        context.timer_service().register_processing_time_timer(10**15)

    def on_timer(self, timestamp, context):
        domain = context.time_domain.value
        if timestamp in (10**12, 10**15):
            context.timer_service().register_event_time_timer(timestamp + 1)
            context.timer_service().register_processing_time_timer(timestamp + 1)
        yield context.current_key, domain, self.count.value(), sorted(self.parts.keys())


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_fire_at_the_end_of_each_key(spark, job_conf, parallelism):
    """Each key sees only its own rows and state; timers that `on_timer` sets do not fire."""
    job_conf(parallelism=parallelism)
    rows = [(f"k{n % 7}", n) for n in range(21)]
    df = spark.createDataFrame(rows, "k string, n long")
    out = key_by(df, "k").process(
        Farewell(),
        output="k string, domain string, count long, parts array<long>",
        uid="farewell",
        execution_mode="batch",
    )
    found = sorted(map(tuple, out.collect()))
    assert found == sorted(
        (f"k{k}", domain, 3, [k, k + 7, k + 14])
        for k in range(7)
        for domain in ("event-time", "processing-time")
    )


@pytest.mark.spark
def test_batch_gives_what_streaming_gives(spark, job_conf):
    """Batch execution gives the rows of streaming execution, in the requested order, also for NaN keys."""
    job_conf(state_backend="rocksdb", parallelism=2)
    keys = [1.5, math.nan, 0.0, -0.0, 2.5]
    rows = [(keys[n % 5], n) for n in range(40)]
    df = spark.createDataFrame(rows, "k double, n long")

    def run(mode):
        schema = RUNNING.replace("string", "double")
        out = key_by(df, "k").process(
            Running(), output=schema, uid="r", order_by="n", execution_mode=mode
        )
        return sorted((repr(row[0]), *row[1:]) for row in out.collect())

    assert run("batch") == run("streaming")


@pytest.mark.spark
def test_windows_in_batch_execution(spark, job_conf):
    """All windows of a key fire at its end."""
    job_conf(parallelism=2)
    df = spark.createDataFrame([("a", 1, 1), ("b", 61, 2), ("a", 2, 3)], "k string, s int, n int")
    windowed = key_by(df.selectExpr("k", "timestamp_seconds(s) t", "n"), "k").window(
        windows.TumblingEventTimeWindows.of(60_000)
    )
    out = windowed.reduce(
        int.__add__,
        int,
        "n",
        output="k string, start bigint, end bigint, n bigint",
        uid="w",
        event_time="t",
        execution_mode="batch",
    )
    assert sorted(map(tuple, out.collect())) == [("a", 0, 60_000, 4), ("b", 60_000, 120_000, 2)]


@pytest.mark.spark
def test_windows_of_processing_time_in_batch_execution(spark, job_conf):
    """Each window of processing time fires once, at the end of its key."""
    job_conf(parallelism=1)
    df = spark.createDataFrame([("a", n) for n in range(1, 40)], "k string, n int")
    windowed = key_by(df, "k").window(windows.TumblingProcessingTimeWindows.of(1))
    out = windowed.reduce(
        int.__add__,
        int,
        "n",
        output="k string, start bigint, end bigint, n bigint",
        uid="w",
        execution_mode="batch",
    ).collect()
    assert sum(row.n for row in out) == sum(range(40))
    assert len({row.start for row in out}) == len(out)


@pytest.mark.spark
def test_streams_and_unknown_modes_are_refused(spark, job_conf, files):
    """A stream is refused; an unknown mode is refused with the known ones."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    for mode, reason in (("batch", "no end"), ("lazy", "expected one of streaming, batch")):
        with pytest.raises(errors.ConfigError, match=reason):
            key_by(files.stream(), "k").process(
                Running(), output=RUNNING, uid="x", execution_mode=mode
            )


def test_another_key_empties_the_state():
    """The state of a key is gone when the next key comes."""
    with open_batch_backend(key_type=str) as backend:
        value = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        entries = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int))
        backend.set_current_key("a")
        value.update(1)
        entries.put_all({"x": 1, "y": 2})
        assert backend.num_state_entries() == 3
        assert list(backend.keys("v")) == ["a"]
        entries.remove("x")
        assert dict(entries.items()) == {"y": 2}
        backend.set_current_key("b")
        assert (value.value(), entries.is_empty(), backend.num_state_entries()) == (None, True, 0)
