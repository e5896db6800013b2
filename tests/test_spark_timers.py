"""Timers on Spark: in plain batches; a streaming query with them is refused."""

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by

pytestmark = pytest.mark.spark


class Silence(mp.KeyedProcessFunction):
    """Yields a key and the time 10 s after its last row."""

    def open(self, context):
        self.last = context.get_state(mp.ValueStateDescriptor("last", int))

    def process_element(self, row, context):
        service = context.timer_service()
        if self.last.value() is not None:
            service.delete_event_time_timer(self.last.value() + 10_000)
        self.last.update(context.timestamp)
        service.register_event_time_timer(context.timestamp + 10_000)

    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp


OUTPUT = "k string, t bigint"


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_event_time_timers_in_a_plain_batch(spark, job_conf, backend):
    """At the end of the rows every event-time timer that was not deleted fires."""
    job_conf(state_backend=backend)
    rows = [("a", 1), ("b", 5), ("a", 8)]
    df = spark.createDataFrame(rows, "k string, s bigint").selectExpr("k", "timestamp_seconds(s) t")
    out = key_by(df, "k").process(
        Silence(), output=OUTPUT, uid="silence", event_time="t", order_by="t"
    )
    assert sorted(map(tuple, out.collect())) == [("a", 18_000), ("b", 15_000)]


def test_a_streaming_query_with_timers_is_refused(job_conf, files):
    """It says so at once, rather than never calling on_timer."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    with pytest.raises(errors.UnsupportedCapabilityError, match="timers in streaming queries"):
        key_by(files.stream(), "k").process(Silence(), output=OUTPUT, uid="silence")
