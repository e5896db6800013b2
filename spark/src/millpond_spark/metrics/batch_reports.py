"""Reports of committed batches in the driver: to the endpoint for Prometheus, and to the log."""

from __future__ import annotations

import logging
import threading
from datetime import datetime

from millpond.config import Config
from pyspark.sql import SparkSession
from pyspark.sql.streaming import listener
from typing_extensions import override

from millpond_spark.metrics.batch_metrics import MetricsListener, OperatorMetrics
from millpond_spark.metrics.prometheus import Families, families_at_endpoint
from millpond_spark.session import internals

_LOG = logging.getLogger("millpond.batches")

_LOGGED = (
    "rows_in", "rows_out", "timers_fired", "open_ms", "process_ms", "snapshot_ms", "bytes_written",
    "snapshot_bytes",
)  # fmt: skip


class BatchReports(MetricsListener):
    """Reports the batches of a session's queries.

    Attributes:
        families: the metrics for Prometheus; None without an endpoint.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark, self._report_operator)
        self.families: Families | None = None
        self._names: dict[str, str] = {}

    def _name(self, query_id: str) -> str:
        return self._names.get(query_id, query_id)

    def _report_operator(self, operator: OperatorMetrics) -> None:
        name = self._name(operator.query)
        numbers = " ".join(f"{each}={operator.metrics[each]:.0f}" for each in _LOGGED)
        _LOG.info(
            "query=%s operator=%s batch=%d subtasks=%d %s",
            name, operator.operator_uid, operator.batch_id, operator.subtasks, numbers,
        )  # fmt: skip
        if self.families is not None:
            for subtask in operator.by_subtask:
                self.families.record(name, subtask)

    @override
    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        """Remember the query's name."""
        super().onQueryStarted(event)
        if event.name:
            self._names[str(event.id)] = event.name
        if self.families is not None:
            self.families.running.labels(self._name(str(event.id))).set(1)
            self.families.failures.labels(self._name(str(event.id)))  # so that it starts at 0

    @override
    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        """Report a batch."""
        super().onQueryProgress(event)
        if self.families is not None:
            _record_progress(self.families, self._name(str(event.progress.id)), event.progress)

    @override
    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
        """Count a failure of the query."""
        super().onQueryTerminated(event)
        query = self._names.pop(str(event.id), str(event.id))
        if self.families is not None:
            self.families.running.labels(query).set(0)
            self.families.forget_gauges(query)
            if event.exception:
                self.families.failures.labels(query).inc()


def _record_progress(
    families: Families, query: str, progress: listener.StreamingQueryProgress
) -> None:
    """Record the times of a batch of a query."""
    families.batches.labels(query).inc()
    milliseconds = progress.durationMs.get("triggerExecution", 0)
    families.batch_seconds.labels(query).observe(milliseconds / 1000)
    started = datetime.fromisoformat(progress.timestamp).timestamp()
    families.last_batch.labels(query).set(started + milliseconds / 1000)
    watermark = progress.eventTime.get("watermark")
    if watermark:
        families.watermark.labels(query).set(datetime.fromisoformat(watermark).timestamp())


_reports: dict[str, BatchReports] = {}
"""The listeners of sessions, by the sessions' ids."""
_adding = threading.Lock()


def report_batches(spark: SparkSession, config: Config) -> None:
    """Report the batches of a session's queries, if an endpoint or the log asks for reports.

    Without them there is no listener, because each report reads the metrics by a small Spark job.

    Raises:
        ConfigError: the endpoint cannot be started.
    """
    families = families_at_endpoint(config)
    if families is None and not _LOG.isEnabledFor(logging.INFO):
        return
    session = internals.session_id(spark)
    with _adding:
        if session not in _reports:
            _reports[session] = BatchReports(spark)
            spark.streams.addListener(_reports[session])
        if families is not None:
            _reports[session].families = families
