"""The metrics of operators on the driver, read from the pointers of a query's last batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable

import attrs
from millpond.arguments import check_type
from millpond.errors import ConfigError
from millpond.reporters import prometheus_text
from pyspark.sql import SparkSession
from pyspark.sql.streaming import listener
from typing_extensions import override

from millpond_spark.plan.pointer import check_query, id_of_query, read_pointers
from millpond_spark.session.internals import checkpoint_of, running_query
from millpond_spark.session.session import check_session, is_connect
from millpond_spark.worker.task import numbers_of

_LOG = logging.getLogger("millpond.metrics")


@attrs.frozen
class SubtaskMetrics:
    """The metrics of one subtask in one micro-batch.

    Attributes:
        operator_uid: the operator.
        first_group, last_group: its key groups.
        checkpoint_id: the batch id plus one.
        metrics: the metrics by name: ``rows_in``, ``rows_out``; ``open_ms``, ``process_ms``,
            ``snapshot_ms``; ``bytes_written``, ``rows_written`` to the checkpoint directory;
            ``snapshot_bytes``, the bytes that a restore would read; ``source``, the origin of
            the backend: ``new``, ``worker``, ``local``, ``deltas``, ``snapshot`` or ``rescaled``;
            ``executor`` and ``pid``, the worker process.
    """

    operator_uid: str
    first_group: int
    last_group: int
    checkpoint_id: int
    metrics: dict[str, object]


def subtask_metrics(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskMetrics]:
    """Return each subtask's metrics in the last batch in which the subtask had rows.

    Raises:
        ConfigError: the directory is not the checkpoint of a query, Spark cannot read it, or it
            does not have the batch.
    """
    check_query(spark, checkpoint, batch_id)
    id_of_query(spark, checkpoint)  # for another directory Spark reads no state, or creates folders
    return committed_metrics(spark, checkpoint, batch_id)


def committed_metrics(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskMetrics]:
    """Return the metrics of each subtask's last batch from a query's checkpoint."""
    return [
        SubtaskMetrics(
            each.operator_uid,
            each.first_group,
            each.last_group,
            each.checkpoint_id,
            json.loads(each.metrics),
        )
        for each in read_pointers(spark, checkpoint, batch_id)
    ]


@attrs.frozen
class OperatorMetrics:
    """The metrics of one operator in one micro-batch.

    Attributes:
        batch_id: the micro-batch.
        query: the id of the query.
        subtasks: the number of subtasks that ran in it.
        metrics: the metrics by name. Counts are summed over the subtasks. A time or a quantile is
            the largest of the subtasks' values.
        by_subtask: the metrics of each subtask.
    """

    operator_uid: str
    batch_id: int
    subtasks: int
    metrics: dict[str, float]
    by_subtask: tuple[SubtaskMetrics, ...]
    query: str

    def prometheus(self) -> str:
        """Return each subtask's metrics in Prometheus' text format."""
        return prometheus_text(
            (
                numbers_of(dict(each.metrics)),
                {
                    "query": self.query,
                    "operator": self.operator_uid,
                    "groups": f"{each.first_group}-{each.last_group}",
                },
            )
            for each in self.by_subtask
        )


def sum_metrics(
    subtasks: Iterable[SubtaskMetrics], batch_id: int, query: str
) -> list[OperatorMetrics]:
    """Combine the metrics of the subtasks that ran in a batch of a query, by operator."""
    by_operator: dict[str, list[SubtaskMetrics]] = {}
    for each in subtasks:
        if each.checkpoint_id == batch_id + 1:
            by_operator.setdefault(each.operator_uid, []).append(each)
    found = []
    for uid, mine in sorted(by_operator.items()):
        samples: dict[str, list[float]] = {}
        for each in mine:
            for name, value in numbers_of(dict(each.metrics)).items():
                samples.setdefault(name, []).append(value)
        metrics = {name: _combiner(name, samples)(values) for name, values in samples.items()}
        found.append(OperatorMetrics(uid, batch_id, len(mine), metrics, tuple(mine), query))
    return found


def _combiner(name: str, metrics: Container[str]) -> Callable[[list[float]], float]:
    """Return the function that combines the values of a metric from several subtasks.

    Args:
        name: the metric.
        metrics: the names of all metrics of the operator.
    """
    if not name.startswith("user."):
        return max if name.endswith(("_ms", ".p50", ".p95", ".p99", ".max")) else sum
    prefix, _, part = name.rpartition(".")
    is_distribution = f"{prefix}.count" in metrics and f"{prefix}.sum" in metrics
    return {"min": min, "max": max}.get(part, sum) if is_distribution else sum


class MetricsListener(listener.StreamingQueryListener):
    """A listener that passes the metrics of Millpond's operators to a function, batch by batch.

    It reads the committed pointers after each batch by a small Spark job, so lost attempts do not
    count. Register it with ``spark.streams.addListener``.
    """

    def __init__(self, spark: SparkSession, report: Callable[[OperatorMetrics], None]) -> None:
        check_session("spark", spark)
        if is_connect(spark):
            reason = (
                "Spark Connect does not report a query's checkpoint to a listener: call "
                "subtask_metrics(spark, checkpoint), or let the workers report (metrics.reporters)"
            )
            raise ConfigError("spark", reason, "MetricsListener(...)")
        check_type("report", report, Callable)
        self._spark = spark
        self._report = report
        self._checkpoints: dict[str, str] = {}

    @override
    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        """Record the query's checkpoint now, as the query may be gone at its last progress."""
        self._record_checkpoint(str(event.id))

    def _record_checkpoint(self, query_id: str) -> None:
        self._checkpoints[query_id] = checkpoint_of(running_query(self._spark, query_id))

    @override
    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        """Read and report the metrics; an error is logged, and the query goes on."""
        try:
            progress = event.progress
            query_id = str(progress.id)
            if query_id not in self._checkpoints:  # it was started before the listener was added
                self._record_checkpoint(query_id)
            checkpoint = self._checkpoints[query_id]
            subtasks = committed_metrics(self._spark, checkpoint, progress.batchId)
            for metrics in sum_metrics(subtasks, progress.batchId, query_id):
                self._report(metrics)
        except Exception:  # noqa: BLE001 - metrics never fail a query
            _LOG.warning("the metrics of a batch could not be read", exc_info=True)

    @override
    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
        """Forget the query: all of its batches have been reported."""
        self._checkpoints.pop(str(event.id), None)
