"""TTL by event time on Spark: the watermark of the micro-batch decides, also after a restart."""

from datetime import timedelta

import millpond as mp
import pytest
from millpond.spark import key_by
from pyspark.errors import StreamingQueryException

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark


class FirstOfEach(mp.KeyedProcessFunction):
    """Yields a number of a key unless the key had it in the ten seconds before."""

    def open(self, context):
        ttl = mp.StateTtlConfig(timedelta(seconds=10), time=mp.TtlTime.EVENT_TIME)
        seen = mp.MapStateDescriptor("seen", int, bool).enable_time_to_live(ttl)
        self.seen = context.get_map_state(seen)

    def process_element(self, row, context):
        if row.n not in self.seen:
            own = {"ttl": timedelta(seconds=100)} if row.n > 90 else {}
            self.seen.put(row.n, True, **own)
            yield row.k, row.s, row.n


def firsts(rows, event_time=None):
    out = "k string, s bigint, n bigint"
    return key_by(rows, "k").process(FirstOfEach(), output=out, uid="firsts", event_time=event_time)


def timed(source):
    return source.stream().selectExpr("k", "s", "n", "timestamp_seconds(s) t")


@pytest.fixture
def source(spark, job_conf, tmp_path):
    job_conf(state_backend="rocksdb", parallelism=2)
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    files.add(("a", 1000, 1), ("b", 1003, 1), ("a", 1001, 99))
    files.add(("a", 1005, 1), ("c", 1012, 1))
    files.add(("a", 1011, 1), ("b", 1012, 1), ("a", 1011, 99))
    return files


@pytest.mark.long
def test_entries_expire_by_the_watermark_of_the_batch(source, spark, job_conf, tmp_path):
    """Entries expire by the watermark of earlier batches, and continue to do so after a rescale."""
    run(firsts(timed(source).withWatermark("t", "0 seconds")), tmp_path)
    first = [("a", 1000, 1), ("a", 1001, 99), ("a", 1011, 1), ("b", 1003, 1), ("c", 1012, 1)]
    assert output(spark, tmp_path) == first
    job_conf(state_backend="rocksdb", parallelism=3)
    source.add(("a", 1014, 1), ("b", 1014, 1), ("c", 1014, 1))
    source.add(("c", 1023, 2), ("b", 1022, 2))
    source.add(("a", 1024, 1), ("b", 1024, 1), ("c", 1024, 1), ("a", 1024, 99))
    run(firsts(timed(source).withWatermark("t", "0 seconds")), tmp_path)
    later = [("a", 1024, 1), ("b", 1022, 2), ("b", 1024, 1), ("c", 1023, 2), ("c", 1024, 1)]
    assert output(spark, tmp_path) == sorted([*first, *later])


def test_without_a_watermark_the_state_is_refused(source, tmp_path):
    """A stream without a watermark fails when the function requests the state; a batch does not."""
    with pytest.raises(StreamingQueryException) as caught:
        run(firsts(timed(source), event_time="t"), tmp_path)
    assert "NoWatermarkError: Operator 'firsts': timers and TTL of event time need" in str(
        caught.value
    )
    rows = source.spark.read.schema(source.schema).json(str(source.folder))
    found = firsts(rows.selectExpr("*", "timestamp_seconds(s) t"), event_time="t").collect()
    assert {(row.k, row.n) for row in found} == {("a", 1), ("a", 99), ("b", 1), ("c", 1)}
    assert len(found) == 4
