"""``millpond run``: a streaming query from a job file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from millpond.errors import JobError
from millpond.operator.opening import configured_backend

from millpond_cli.jobfile import JobFile, load_function
from millpond_cli.output import show, working
from millpond_cli.spark import QUIET, spark_words
from millpond_cli.targets import file_path
from millpond_cli.terminal import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start_query(spark: SparkSession, job: JobFile, function: Any) -> StreamingQuery:
    """Start a job's query, which processes the available input and then stops.

    Raises:
        PySparkException: Spark refuses the source, its schema or the watermark.
        ConfigError: Millpond refuses an argument.
    """
    from millpond.spark import key_by  # noqa: PLC0415 - an extra

    section, source = job.job, job.source
    reader = spark.readStream.format(source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    rows = reader.load(None if source.path is None else job.uri(source.path))
    if section.event_time is not None and section.watermark is not None:
        rows = rows.withWatermark(section.event_time, section.watermark)
    result = key_by(rows, *section.key, null_keys=section.null_keys).process(  # type: ignore[arg-type]
        function,
        output=section.output,
        uid=section.uid,
        event_time=section.event_time,
        order_by=section.order_by,
        time_mode=section.time_mode,  # type: ignore[arg-type]
        null_event_times=section.null_event_times,  # type: ignore[arg-type]
    )
    writer = result.writeStream.format(job.sink.format).options(**job.sink.options)
    writer = writer.option("checkpointLocation", job.uri(job.sink.checkpoint))
    if job.sink.path is not None:
        writer = writer.option("path", job.uri(job.sink.path))
    return writer.trigger(availableNow=True).start()


@click.command()
@click.argument("file", type=file_path)
@click.option("--backend", help="Use this state backend instead of the file's.")
def run(file: Path, backend: str | None) -> None:
    """Run the job that a TOML FILE describes over all available input, then stop.

    Run it again to process newer input.
    """
    job = JobFile.read(file)
    with job.locating_errors():
        configured_backend(job.config, backend or "")
        try:
            function = load_function(job.job.function, job.folder)
        except JobError as error:
            error.what = f"{job.option_source.location('job.function')}: {error.what}"
            raise
    with spark_words(str(file)), job.locating_errors():
        with working("starting Spark"):
            spark = _session(job, backend)
        try:
            _follow(start_query(spark, job, function))
            _report(spark, job)
        finally:
            spark.stop()


def _session(job: JobFile, backend: str | None) -> SparkSession:
    """Start Spark with the settings of the job file.

    The settings in the section ``[spark]`` override the settings that `configure` makes.

    Args:
        job: the job file.
        backend: the state backend to use instead of the one in the job file.
    """
    from millpond.spark import configure  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

    builder = SparkSession.builder.appName(f"millpond {job.job.uid}")
    if "spark.master" not in job.spark:
        builder = builder.master("local[*]")
    for key, value in {**QUIET, **job.spark, **job.settings}.items():
        builder = builder.config(key, value)
    restore = job.config.checkpoint.restore
    configure(
        builder,
        parallelism=job.config.parallelism or 2,
        checkpoint_dir=job.uri(job.config.checkpoint.dir or "snapshots"),
        state_backend=backend or job.config.state.backend,
        **({"checkpoint_restore": job.uri(restore)} if restore else {}),
    )
    for key, value in job.spark.items():  # after `configure`, to override its settings
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _follow(query: StreamingQuery) -> None:
    """Print a line for each finished batch until the query ends."""
    shown, is_over = -1, False
    while not is_over:
        with working(f"running batch {shown + 1}" if shown >= 0 else "running"):
            while not (is_over := query.awaitTermination(1) or False):
                last = query.lastProgress
                if last is not None and last.batchId > shown:
                    break
        for progress in query.recentProgress:
            if progress.batchId > shown:
                shown = progress.batchId
                seconds = progress.durationMs.get("triggerExecution", 0) / 1000
                say(f"batch {shown}: {progress.numInputRows} rows in {seconds:.1f} s")


def _report(spark: SparkSession, job: JobFile) -> None:
    """Print the metrics of the last batch, with one row for each subtask."""
    from millpond.spark import subtask_metrics  # noqa: PLC0415 - an extra

    rows = []
    with working("reading the metrics"):
        found = subtask_metrics(spark, job.uri(job.sink.checkpoint))
    for subtask in found:
        metrics: dict[str, Any] = subtask.metrics
        spent = metrics["open_ms"] + metrics["process_ms"] + metrics["snapshot_ms"]
        rows.append(
            {
                "operator": subtask.operator_uid,
                "key_groups": f"{subtask.first_group}..{subtask.last_group}",
                "rows_in": metrics["rows_in"],
                "rows_out": metrics["rows_out"],
                "ms": round(spent),
                "bytes_written": metrics["bytes_written"],
                "state_from": metrics["source"],
            }
        )
    if rows:
        say("The last batch, by subtask:")
    show(rows, as_json=False, empty="No subtask has had rows yet.", by=("operator",))
