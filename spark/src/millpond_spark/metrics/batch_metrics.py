"""Metrics of operators and subtasks. The driver reads them from a query's checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable

import attrs
from millpond.arguments import check_type
from millpond.errors import ConfigError
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
        first_group, last_group: the first and the last key group of the subtask.
        checkpoint_id: the batch id plus one.
        metrics: the metrics by name. Among them are ``rows_in`` and ``rows_out``; the times
            ``open_ms``, ``process_ms`` and ``snapshot_ms``; ``bytes_written`` and ``rows_written``
            in the checkpoint directory; ``snapshot_bytes``, the bytes that a restore would read;
            ``source``, the origin of the state in the backend, one of ``new``, ``worker``,
            ``local``, ``deltas``, ``snapshot`` and ``rescaled``; ``executor`` and ``pid``, which
            name the worker process.
    """

    operator_uid: str
    first_group: int
    last_group: int
    checkpoint_id: int
    metrics: dict[str, object]


def subtask_metrics(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskMetrics]:
    """Return each subtask's metrics in the last batch in which the subtask had rows or timers.

    Args:
        spark: a session.
        checkpoint: the query's ``checkpointLocation``.
        batch_id: a batch that Spark still retains; by default the last committed batch. Later
            batches are ignored.

    Raises:
        ConfigError: `checkpoint` is not the checkpoint of a query, Spark cannot read it, or Spark
            no longer has the batch.
    """
    check_query(spark, checkpoint, batch_id)
    id_of_query(spark, checkpoint)  # for another directory Spark reads no state, or creates folders
    return committed_metrics(spark, checkpoint, batch_id)


def committed_metrics(
    spark: SparkSession, checkpoint: str, batch_id: int | None = None
) -> list[SubtaskMetrics]:
    """Do the work of ``subtask_metrics`` without checks of the arguments."""
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
        batch_id: the id of the micro-batch.
        query: the id of the query.
        subtasks: the number of subtasks that ran in the micro-batch.
        metrics: the metrics by name. A count is the sum over these subtasks. A time or a quantile
            is the largest value of a subtask.
        by_subtask: the metrics of each of these subtasks.
    """

    operator_uid: str
    batch_id: int
    subtasks: int
    metrics: dict[str, float]
    by_subtask: tuple[SubtaskMetrics, ...]
    query: str


def sum_metrics(
    subtasks: Iterable[SubtaskMetrics], batch_id: int, query: str
) -> list[OperatorMetrics]:
    """Return the metrics of each operator in a batch, combined from those of its subtasks.

    Args:
        subtasks: the metrics of subtasks. Metrics from other batches are ignored.
        batch_id: the batch.
        query: the query's id.
    """
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
    """Return the function that combines the values of the metric `name` from several subtasks.

    Args:
        name: the metric's name.
        metrics: the names of all metrics of the operator.
    """
    if not name.startswith("user."):
        return max if name.endswith(("_ms", ".p50", ".p95", ".p99", ".max")) else sum
    prefix, _, part = name.rpartition(".")
    is_distribution = f"{prefix}.count" in metrics and f"{prefix}.sum" in metrics
    return {"min": min, "max": max}.get(part, sum) if is_distribution else sum


class MetricsListener(listener.StreamingQueryListener):
    """A listener that calls a function with the metrics of each Millpond operator in each batch.

    After each batch a small Spark job reads the metrics from the query's checkpoint. Therefore
    failed attempts of tasks do not count. Register the listener with ``spark.streams.addListener``.

    Args:
        spark: the session of the queries.
        report: the function.
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
        """Record the query's checkpoint, which Spark no longer reports after the query's end."""
        self._record_checkpoint(str(event.id))

    def _record_checkpoint(self, query_id: str) -> None:
        self._checkpoints[query_id] = checkpoint_of(running_query(self._spark, query_id))

    @override
    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        """Read and report the metrics of a batch. If this fails, log the error."""
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
        """Forget the query's checkpoint."""
        self._checkpoints.pop(str(event.id), None)
