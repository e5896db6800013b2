"""The streaming query of a job file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millpond.errors import ConfigError

from millpond_cli.jobfile import JobFile, JobSection
from millpond_cli.spark import reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start_query"]


def start_query(spark: SparkSession, job: JobFile, function: Any) -> StreamingQuery:
    """Start a job's query over the input that is there.

    Raises:
        ConfigError: Spark refuses the source, its schema or the watermark, or Millpond what it is
            given.
    """
    from millpond.spark import key_by  # noqa: PLC0415 - an extra

    section = job.job
    rows = _watermarked(_source(spark, job), section)
    result = key_by(rows, *section.key, null_keys=section.null_keys).process(  # type: ignore[arg-type]
        function,
        output=section.output,
        uid=section.uid,
        event_time=section.event_time,
        order_by=section.order_by,
        time_mode=section.time_mode,  # type: ignore[arg-type]
    )
    writer = result.writeStream.format(job.sink.format).options(**job.sink.options)
    writer = writer.option("checkpointLocation", job.uri(job.sink.checkpoint))
    if job.sink.path is not None:
        writer = writer.option("path", job.uri(job.sink.path))
    return writer.trigger(availableNow=True).start()


def _source(spark: SparkSession, job: JobFile) -> DataFrame:
    source = job.source
    reader = spark.readStream.format(source.format).options(**source.options)
    if source.schema is not None:
        with _refused("source.schema"):
            reader = reader.schema(source.schema)
    with _refused("source"):
        return reader.load(None if source.path is None else job.uri(source.path))


def _watermarked(rows: DataFrame, section: JobSection) -> DataFrame:
    if section.event_time is None or section.watermark is None:
        return rows
    with _refused("job.event_time"):
        rows.select(section.event_time)
    with _refused("job.watermark"):
        return rows.withWatermark(section.event_time, section.watermark)


@contextmanager
def _refused(key: str) -> Iterator[None]:
    """Tell what Spark refuses meanwhile by the key of the job file; ConfigError."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

    try:
        yield
    except PySparkException as error:
        raise ConfigError(key, reason(str(error)).removesuffix(".")) from error
