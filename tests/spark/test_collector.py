"""Full garbage collections in a worker look at new objects, and only sometimes at all objects."""

import gc
import subprocess
import sys
import textwrap

import millpond as mp
from millpond.spark import key_by, subtask_metrics
from millpond_spark.worker import gc_control as collector

from tests.spark.streaming import Files, run

COLLECTIONS = """
    import gc, os, weakref
    from millpond_spark.worker import gc_control as collector

    class Cycle:
        def __init__(self):
            self.me = self

    collector.freeze_after_full_gc()
    gc.collect()
    assert gc.get_freeze_count() == 0, "a process that Spark does not use again is left alone"
    os.environ["SPARK_REUSE_WORKER"] = "1"
    for _ in range(2):
        collector.freeze_after_full_gc()
    assert gc.callbacks == [collector._collected]

    lost, kept = Cycle(), [Cycle()]
    seen, stays = weakref.ref(lost), weakref.ref(kept[0])
    gc.collect(1)
    assert gc.get_freeze_count() == 0, "of a young generation nothing is set aside"
    gc.collect()
    spared = gc.get_freeze_count()
    assert spared > 1000
    fresh = weakref.ref(Cycle())
    del lost
    gc.collect()
    assert fresh() is None, "new garbage goes at once"
    assert seen() is not None, "what was set aside is not looked at"
    for _ in range(collector._UNFREEZE_EVERY):
        gc.collect()
    assert seen() is None, "it goes with the next look at everything"

    gc.collect()
    kept.clear()
    gc.unfreeze()
    gc.collect()
    assert stays() is None, "and at once where something large was let go"
    """


def test_what_stays_is_set_aside():
    """This test has its own process, because a process has one collector."""
    code = textwrap.dedent(COLLECTIONS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Spared(mp.KeyedProcessFunction):
    """Function that yields how often the worker's collector is watched."""

    def open(self, context):
        watchers = [each for each in gc.callbacks if each.__module__ == collector.__name__]
        context.get_metric_group().counter("watchers").inc(len(watchers))

    def process_element(self, row, context):
        return []


def test_workers_set_aside(spark, job_conf, tmp_path):
    """Each worker of a query watches its collector once."""
    job_conf(state_backend="heap", parallelism=2)
    files = Files(spark, tmp_path / "in")
    for number in range(2):
        files.add(*((f"k{n}", number) for n in range(8)))
    run(key_by(files.stream(), "k").process(Spared(), output="n bigint", uid="spared"), tmp_path)
    metrics = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert [each.metrics["user.watchers"] for each in metrics] == [1, 1]
