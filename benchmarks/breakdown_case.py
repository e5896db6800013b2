"""Run one case of the breakdown in a process of its own; print its batches as one line of JSON.

The times of stages, log writes and state-store commits come from Spark's progress reports and
status store. A function times Millpond's worker from inside: when it is opened for the first time,
it wraps the methods that separate the parts. Its figures travel with the metrics that each subtask
reports.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from cases import CASES, INPUT_SCHEMA, Totals, VectorizedTotals, session
from millpond.spark import key_by, subtask_metrics
from millpond_spark.session.group_labels import group_labels
from one_case import tell_measured, write_batches
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import JStreamingQueryListener
from pyspark.sql.streaming.state import GroupState
from typing_extensions import override

OUTPUT_SCHEMA = "customer string, total double"
FLOOR = "pointer"
VECTORIZED = "vectorized"
OURS = ("millpond", VECTORIZED)
SUBTASKS = 2


class TimedTotals(Totals):
    """A running total that starts the timing of its worker when it is first opened."""

    @override
    def open(self, context: Any) -> None:
        """Get the state."""
        install_laps()
        super().open(context)


class TimedVectorizedTotals(VectorizedTotals):
    """A running total over frames of rows."""

    @override
    def open(self, context: Any) -> None:
        """Get the state."""
        install_laps()
        super().open(context)


def install_laps() -> None:
    """Time the parts of this worker; the laps join the metrics that a subtask reports."""
    from millpond_spark.worker.task import BatchMetrics  # noqa: PLC0415 - in the worker

    if hasattr(BatchMetrics, "laps"):
        return
    laps: dict[str, float] = defaultdict(float)
    running: set[str] = set()
    BatchMetrics.laps = laps  # type: ignore[attr-defined]
    finish = BatchMetrics.finish
    started = time.process_time()

    def timed(owner: Any, name: str, part: str) -> None:
        plain = getattr(owner, name)

        def wrapper(*given: Any, **named: Any) -> Any:
            if part in running:
                return plain(*given, **named)
            running.add(part)
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return plain(*given, **named)
            finally:
                running.remove(part)
                laps[f"{part}_wall"] += (time.perf_counter() - wall) * 1000
                laps[f"{part}_cpu"] += (time.process_time() - cpu) * 1000

        setattr(owner, name, wrapper)

    def finished(self: Any, backend: Any, *given: Any, **named: Any) -> dict[str, Any]:
        nonlocal started
        if not hasattr(type(backend), "timed_flush"):
            timed(type(backend), "flush", "flush")
            type(backend).timed_flush = True
        now = time.process_time()
        told = {f"lap_{name}": took for name, took in laps.items()}
        told["lap_process_cpu"] = (now - started) * 1000
        laps.clear()
        started = now
        return {**finish(self, backend, *given, **named), **told}

    time_parts(timed)
    BatchMetrics.finish = finished  # type: ignore[method-assign]


def time_parts(timed: Callable[[Any, str, str], None]) -> None:
    """Wrap the methods that separate the parts of a task."""
    from millpond.operator.operators import KeyedOperator  # noqa: PLC0415 - in the worker
    from millpond_spark.values.frames import RowCodec  # noqa: PLC0415
    from millpond_spark.values.output_frames import OutputCodec  # noqa: PLC0415
    from millpond_spark.values.side_outputs import Packer  # noqa: PLC0415
    from millpond_spark.worker import runner, task  # noqa: PLC0415

    timed(runner, "in_key_order", "decode")
    timed(runner.VectorizedRunner, "_frame", "decode")
    timed(TimedVectorizedTotals, "process_batch", "rows")
    timed(OutputCodec, "table_frame", "encode")
    timed(RowCodec, "decode", "decode")
    timed(KeyedOperator, "expect", "rows")
    timed(KeyedOperator, "process_all", "rows")
    timed(Packer, "add", "encode")
    timed(Packer, "take", "encode")
    timed(task._Task, "_commit", "commit")  # noqa: SLF001 - the border of two parts


def millpond_job(rows: DataFrame) -> DataFrame:
    """Return the Millpond job on the session's backend."""
    return key_by(rows, "customer").process(TimedTotals(), output=OUTPUT_SCHEMA, uid="totals")


def vectorized_job(rows: DataFrame) -> DataFrame:
    """Return the vectorized Millpond job on the session's backend."""
    function = TimedVectorizedTotals()
    return key_by(rows, "customer").process(function, output=OUTPUT_SCHEMA, uid="totals")


def pointer_job(rows: DataFrame) -> DataFrame:
    """Return a job with Millpond's mechanism and plain output: one small row per subtask."""

    def passing(
        _: Any, frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        yield from (frame[["customer", "amount"]] for frame in frames)
        state.update(("a pointer",))

    labels = F.array(*map(F.lit, group_labels(SUBTASKS)))
    subtask = F.expr(f"pmod(xxhash64(customer), {SUBTASKS})").cast("int")
    keyed = rows.withColumn("label", F.get(labels, subtask)).groupBy("label")
    return keyed.applyInPandasWithState(
        passing, INPUT_SCHEMA, "pointer string", "append", "NoTimeout"
    )


def job_of(case: str) -> tuple[Any, str, str]:
    """Return a case's job, its output mode and the case whose session settings it uses."""
    if case == FLOOR:
        return pointer_job, "append", "repartition"
    if case.startswith(OURS):
        return vectorized_job if case.startswith(VECTORIZED) else millpond_job, "append", case
    return CASES[case][0], "append" if case == "repartition" else "update", case


def processor_times() -> dict[str, float]:
    """Return the milliseconds of processor time so far: of the JVM, and of all Python workers."""
    found = {"jvm": 0.0, "python": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            times, kind = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue
        found["jvm" if kind == "java" else "python"] += (times.user + times.system) * 1000
    return found


class Sampler(JStreamingQueryListener):
    """A listener that notes the processor time at the end of each batch.

    It takes the events of the JVM: converting them to PySpark's costs the JVM 50 ms each.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.samples: dict[int, dict[str, float]] = {}
        self.over = threading.Event()
        self._spark = spark

    @cached_property
    def _jlistener(self) -> Any:
        """Return the object that Spark calls."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 - Spark has no other way
        return jvm.PythonStreamingQueryListenerWrapper(self)

    @override
    def onQueryStarted(self, jevent: Any) -> None:
        """Ignore the start."""

    @override
    def onQueryProgress(self, jevent: Any) -> None:
        """Note the processor time."""
        self.samples[jevent.progress().batchId()] = processor_times()

    @override
    def onQueryIdle(self, jevent: Any) -> None:
        """Ignore idle time."""

    @override
    def onQueryTerminated(self, jevent: Any) -> None:
        """Note that every batch was reported: the query may end before its last report arrives."""
        self.over.set()


def stages_of(spark: SparkSession, batch: int) -> list[Any]:
    """Return the stages of a batch from Spark's status store, in order."""
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()  # noqa: SLF001 - Spark has no public way
    jobs = store.jobsList(None)
    numbers = set()
    for at in range(jobs.size()):
        job = jobs.apply(at)
        described = job.description()
        if described.isDefined() and f"batch = {batch}" in described.get().splitlines():
            ids = job.stageIds()
            numbers |= {ids.apply(at) for at in range(ids.size())}
    return [store.lastStageAttempt(number) for number in sorted(numbers)]


def stage_figures(stages: list[Any]) -> dict[str, float]:
    """Return the milliseconds of the stages that ran: wall clock, and the sum of their tasks."""
    told: dict[str, float] = defaultdict(float)
    ran = [stage for stage in stages if stage.completionTime().isDefined()]
    for at, stage in enumerate(ran):
        kind = "state" if at == len(ran) - 1 else "input"
        wall = stage.completionTime().get().getTime() - stage.submissionTime().get().getTime()
        told[f"{kind}_wall"] += wall
        told[f"{kind}_run"] += stage.executorRunTime() / SUBTASKS
        told[f"{kind}_cpu"] += stage.executorCpuTime() / 1e6
        told[f"{kind}_start"] += stage.executorDeserializeTime() / SUBTASKS
    return told


def subtask_figures(spark: SparkSession, root: Path, batch: int) -> dict[str, float]:
    """Return the mean wall-clock time and the summed processor time of a batch's subtasks."""
    found: dict[str, float] = defaultdict(float)
    for each in subtask_metrics(spark, str(root / "checkpoint"), batch):
        for name, value in each.metrics.items():
            if name.startswith("lap_") or name.endswith("_ms"):
                number = float(str(value))
                found[name] += number if name.endswith("_cpu") else number / SUBTASKS
    return found


def batch_figures(spark: SparkSession, root: Path, case: str, entry: Any) -> dict[str, Any]:
    """Return all figures of a batch."""
    figures: dict[str, Any] = {
        "durations": dict(entry.durationMs),
        "stages": stage_figures(stages_of(spark, entry.batchId)),
    }
    if entry.stateOperators:
        operator = entry.stateOperators[0]
        figures["store_commit"] = operator.commitTimeMs / SUBTASKS
        figures["store_updates"] = operator.allUpdatesTimeMs / SUBTASKS
    if case.startswith(OURS):
        figures["subtasks"] = subtask_figures(spark, root, entry.batchId)
    return figures


def run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Run a case's query over its files, one file per micro-batch."""
    job, mode, settings = job_of(options.case)
    extra = ["spark.sql.streaming.minBatchesToRetain=100", *options.conf]
    spark = session(settings, root / "snapshots", extra)
    sampler: Any = Sampler(spark)
    spark.streams.addListener(sampler)
    rows = spark.readStream.schema(INPUT_SCHEMA).option("maxFilesPerTrigger", 1)
    writer = job(rows.parquet(str(root / "input"))).writeStream.format("noop").outputMode(mode)
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    sampler.over.wait(60)
    progress = [entry for entry in query.recentProgress if entry.numInputRows]
    measured = progress[options.warm_up :]
    batches = [batch_figures(spark, root, options.case, entry) for entry in measured]
    first, last = (sampler.samples[each.batchId] for each in (measured[0], measured[-1]))
    spark.stop()
    between = len(measured) - 1
    cpu = {kind: (last[kind] - first[kind]) / between for kind in first}
    return {**vars(options), "batches": batches, "cpu": cpu}


def main() -> None:
    """Write the input, run the query and report the batches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=12, help="the measured ones")
    parser.add_argument("--warm-up", type=int, default=12)
    parser.add_argument("--conf", action="append", default=[], help="a Spark setting: key=value")
    options = parser.parse_args()
    tell_measured(lambda root: measured(options, root))


def measured(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Write the input of a case, and return its figures."""
    (root / "input").mkdir()
    touched = options.rows * 43 // 100
    count = options.batches + options.warm_up
    write_batches(root / "input", 0, max(options.rows, 1000), options.rows, touched, count)
    return run(options, root)


if __name__ == "__main__":
    main()
