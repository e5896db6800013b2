"""Timers on Spark: by the watermark and by the batch's processing time."""

import datetime as dt

import millpond as mp
import pytest
from millpond.spark import key_by
from streaming import Files, output, run

pytestmark = pytest.mark.spark
UTC = dt.UTC


class Silence(mp.KeyedProcessFunction):
    """Yields key and time 10 s after a key's last row, by event time."""

    def open(self, context):
        self.last = context.get_state(mp.ValueStateDescriptor("last", int))

    def process_element(self, row, context):
        service = context.timer_service()
        if self.last.value() is not None:
            service.delete_event_time_timer(self.last.value() + 10_000)
        self.last.update(context.timestamp)
        service.register_event_time_timer(context.timestamp + 10_000)

    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp // 1000, context.time_domain.value


class Soon(mp.KeyedProcessFunction):
    """Yields the key 1 ms of processing time after its row."""

    def process_element(self, row, context):
        service = context.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 1)

    def on_timer(self, timestamp, context):
        yield context.current_key, 0, context.time_domain.value


OUTPUT = "k string, s bigint, domain string"


def moment(seconds):
    """So many seconds after the epoch, at a later date."""
    return dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=seconds)


BASE = int(moment(0).timestamp())


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_event_time_timers_fire_by_the_watermark(spark, job_conf, tmp_path, backend):
    """Before a batch's rows, by the watermark of earlier batches; in a restarted query too."""
    job_conf(state_backend=backend)
    files = Files(spark, tmp_path / "input", "k string, t timestamp")
    rows = files.stream().withWatermark("t", "0 seconds")
    silences = key_by(rows, "k").process(Silence(), output=OUTPUT, uid="silence")
    files.add(("a", moment(0)), ("b", moment(5)))
    files.add(("a", moment(8)))
    run(silences, tmp_path)
    files.add(("c", moment(16)))
    files.add(("c", moment(30)))
    run(silences, tmp_path)
    found = [(key, second - BASE, domain) for key, second, domain in output(spark, tmp_path)]
    assert found[:2] == [("a", 18, "event-time"), ("b", 15, "event-time")]
    assert ("c", 26, "event-time") in found


def test_an_idle_query_fires_processing_time_timers(spark, job_conf, files, tmp_path):
    """A query whose source has nothing more still calls on_timer."""
    job_conf(state_backend="heap")
    files.add(("a", 1), ("b", 2))
    out = key_by(files.stream(), "k").process(Soon(), output=OUTPUT, uid="soon")
    writer = out.writeStream.format("memory").queryName("soon").outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for _ in range(600):
            query.awaitTermination(0.1)
            found = {tuple(row) for row in spark.table("soon").collect()}
            if len(found) == 2:
                break
    finally:
        query.stop()
    assert found == {("a", 0, "processing-time"), ("b", 0, "processing-time")}
