"""``millpond run``: run a job from its TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from millpond.cli.jobfile import JobFile, load_function
from millpond.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["local_session", "run"]


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--backend", help="Use this state backend instead of the file's.")
def run(file: Path, backend: str | None) -> None:
    """Run the job that a TOML FILE describes over all input there is, then stop.

    Run it again to go on with what has come since.
    """
    job = JobFile.read(file)
    function = load_function(job.job.function, job.folder)
    spark = _session(job, backend)
    try:
        query = _start(spark, job, function)
        _follow(query)
        _report(spark, job)
    finally:
        spark.stop()


_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def local_session() -> SparkSession:
    """A session of this process, to read a query's checkpoint with."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("pyspark", f"{error}; pip install 'millpond[spark]'") from error
    builder = SparkSession.builder.appName("millpond").master("local[1]")
    for key, value in _QUIET.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _session(job: JobFile, backend: str | None) -> SparkSession:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

        from millpond.spark import configure  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("pyspark", f"{error}; pip install 'millpond[spark]'") from error
    builder = SparkSession.builder.appName(f"millpond {job.job.uid}")
    if "spark.master" not in job.spark:
        builder = builder.master("local[*]")
    for key, value in {**_QUIET, **job.spark, **job.settings}.items():
        builder = builder.config(key, value)
    configure(
        builder,
        parallelism=job.config.parallelism or 2,
        checkpoint_dir=job.uri(job.config.checkpoint.dir or "snapshots"),
        state_backend=backend or job.config.state.backend,
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start(spark: SparkSession, job: JobFile, function: Any) -> StreamingQuery:
    from millpond.spark import key_by  # noqa: PLC0415 - an extra

    reader = spark.readStream.format(job.source.format).schema(job.source.schema)
    rows = reader.options(**job.source.options).load(job.uri(job.source.path))
    section = job.job
    result = key_by(rows, *section.key, null_keys=section.null_keys).process(  # type: ignore[arg-type]
        function, output=section.output, uid=section.uid, order_by=section.order_by
    )
    writer = result.writeStream.format(job.sink.format).options(**job.sink.options)
    writer = writer.option("checkpointLocation", job.uri(job.sink.checkpoint))
    if job.sink.path is not None:
        writer = writer.option("path", job.uri(job.sink.path))
    return writer.trigger(availableNow=True).start()


def _follow(query: StreamingQuery) -> None:
    """Print a line for each batch until the input is used up."""
    shown = -1
    while not query.awaitTermination(1):
        shown = _show_new(query, shown)
    _show_new(query, shown)


def _show_new(query: StreamingQuery, shown: int) -> int:
    for progress in query.recentProgress:
        if progress.batchId > shown:
            shown = progress.batchId
            seconds = progress.durationMs.get("triggerExecution", 0) / 1000
            click.echo(f"batch {shown}: {progress.numInputRows} rows in {seconds:.1f} s")
    return shown


def _report(spark: SparkSession, job: JobFile) -> None:
    from millpond.spark import subtask_figures  # noqa: PLC0415 - an extra

    table = Table("operator", "key groups", "rows in", "rows out", "ms", "bytes", "state from")
    for subtask in subtask_figures(spark, job.uri(job.sink.checkpoint)):
        figures: dict[str, Any] = subtask.figures
        table.add_row(
            subtask.operator_uid,
            f"{subtask.first_group}-{subtask.last_group}",
            str(figures["rows_in"]),
            str(figures["rows_out"]),
            f"{figures['open_ms'] + figures['process_ms'] + figures['snapshot_ms']:.0f}",
            str(figures["bytes_written"]),
            str(figures["source"]),
        )
    console = Console()
    console.print("The last batch, by subtask:")
    console.print(table)
