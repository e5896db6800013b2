"""Metrics for Prometheus: families of counters, histograms and gauges, and their endpoint."""

from __future__ import annotations

import logging
import re
import threading
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs
from millpond.config import Config
from millpond.errors import ConfigError

from millpond_spark.metrics.batch_metrics import SubtaskMetrics
from millpond_spark.worker.task import numbers_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_OPTION, _PLACE = "metrics.prometheus-port", "the endpoint for Prometheus"

_LOG = logging.getLogger("millpond.metrics")

SUBTASK_LABELS = ("query", "operator", "subtask", "backend")

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""The bounds of the buckets of histograms."""


@attrs.frozen
class Family:
    """A metric of Prometheus with the metrics of subtasks that it consists of.

    Attributes:
        kind: ``Counter``, ``Gauge`` or ``Histogram``, classes of Prometheus' client library. A
            counter adds up the batches, a gauge has the value of the last batch.
        name: the name without the prefix ``millpond_``; a counter gets the suffix ``_total``.
        text: the meaning, in one sentence.
        pattern: a regular expression of the names of the metrics of subtasks; its named groups
            become labels.
        unit: the number by which values are multiplied.
    """

    kind: str
    name: str
    text: str
    pattern: str
    unit: float = 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        return (*SUBTASK_LABELS, *re.compile(self.pattern).groupindex)


_SIZE = r"(?P<state>.+)\.{}(?:_(?P<quality>estimate))?"
_STATISTIC = r"\.(?P<statistic>p\d+|max)"

FAMILIES = (
    Family("Counter", "rows_in", "Rows that the subtask received.", "rows_in"),
    Family("Counter", "rows_out", "Rows that the subtask put out.", "rows_out"),
    Family("Counter", "timers_fired", "Timers that fired.", "timers_fired"),
    Family("Counter", "failed_attempts", "Failed attempts of tasks before the one that succeeded.",
           "failed_attempts"),
    Family("Counter", "late_rows", "Rows that came too late for a window, a pattern or a join.",
           r"user\.(?:numLateRecordsDropped|numLateRecords)"),
    Family("Counter", "dead_letters", "Rows that failed and went to the side output.",
           r"user\.numDeadLetters"),
    Family("Counter", "restored_bytes", "Bytes that were read to restore state.",
           r"restored_bytes\.(?P<place>\w+)"),
    Family("Counter", "local_copies_discarded", "Local copies of the state that were not used.",
           "copies_discarded"),
    Family("Counter", "expired_entries_removed", "Expired entries that were removed.",
           "expired_removed"),
    Family("Counter", "snapshot_written_bytes", "Bytes that snapshots wrote.", "bytes_written"),
    Family("Counter", "snapshot_written_rows", "Rows that snapshots wrote.", "rows_written"),
    Family("Counter", "store_reads", "Rows that were read from the store.", "store_reads"),
    Family("Counter", "store_writes", "Rows that were written to the store.", "store_writes"),
    Family("Counter", "cache_hits", "Reads that the write buffer answered.", "cache_hits"),
    Family("Histogram", "open_seconds", "Time to open or restore the state, per batch.",
           "open_ms", 1e-3),
    Family("Histogram", "process_seconds", "Time to process the rows and timers, per batch.",
           "process_ms", 1e-3),
    Family("Histogram", "snapshot_seconds", "Time to take the snapshot, per batch.",
           "snapshot_ms", 1e-3),
    Family("Gauge", "snapshot_bytes", "Bytes that a restore from the snapshot would read.",
           "snapshot_bytes"),
    Family("Gauge", "user_value", "A metric of the function, in the last batch.",
           r"user\.(?P<name>.+)"),
    Family("Gauge", "native_value", "A gauge of the backend's native library.",
           r"native_(?P<name>.+)"),
    Family("Gauge", "state_access_seconds", "Sampled latency of an operation on a state.",
           rf"(?P<state>.+)\.(?P<operation>\w+)_ns{_STATISTIC}", 1e-9),
    Family("Gauge", "state_access_bytes", "Sampled size of the values of an operation on a state.",
           rf"(?P<state>.+)\.(?P<operation>\w+)_bytes{_STATISTIC}"),
    Family("Gauge", "state_keys", "Keys of a state.", _SIZE.format("keys")),
    Family("Gauge", "state_entries", "Entries of a state.", _SIZE.format("entries")),
    Family("Gauge", "state_bytes", "Bytes of a state in the store.", _SIZE.format("bytes")),
    Family("Counter", "state_restored_bytes", "Bytes of a state that were read to restore it.",
           r"(?P<state>.+)\.restored_bytes"),
    Family("Counter", "state_calls", "Calls of an operation on a state.",
           r"(?P<state>.+)\.(?P<operation>\w+)"),
)  # fmt: skip
"""All families of subtasks. The first one whose pattern matches gets a metric."""

_USER = "user."
"""The prefix of the function's own metrics."""


@cache
def _family(metric: str) -> tuple[Family, tuple[str, ...]] | None:
    """Return the family of a subtask's metric, and the values of the labels in its name."""
    for family in FAMILIES:
        match = re.fullmatch(family.pattern, metric)
        if match:
            return family, tuple(text or "exact" for text in match.groups())
    return None


def _client() -> Any:
    """Return Prometheus' client library; raise ConfigError if it is not installed."""
    try:
        return import_module("prometheus_client")
    except ImportError as error:
        reason = "install it with: pip install 'millpond-spark[prometheus]'"
        raise ConfigError(_OPTION, reason, _PLACE) from error


class Families:
    """The metrics of all queries of this process, in a registry of the client library.

    Attributes:
        registry: the registry, which the endpoint serves.
    """

    def __init__(self) -> None:
        client = _client()
        self.registry: CollectorRegistry = client.CollectorRegistry()
        self._made = {
            each: self._metric(each.kind, each.name, each.text, each.labels) for each in FAMILIES
        }
        user = "The sum of a metric of the function over all batches."
        self._user = self._metric("Counter", "user", user, (*SUBTASK_LABELS, "name"))
        restores = "Restores of a subtask, by the source of its state."
        self._restores = self._metric("Counter", "restores", restores, (*SUBTASK_LABELS, "source"))
        self.batches = self._metric("Counter", "batches", "Micro-batches that were committed.")
        self.batch_seconds = self._metric("Histogram", "batch_seconds", "Time of a micro-batch.")
        self.failures = self._metric("Counter", "query_failures", "Queries that failed.")
        self.running = self._metric("Gauge", "query_running", "1 if the query runs, otherwise 0.")
        last = "The time of the last committed batch."
        self.last_batch = self._metric("Gauge", "last_batch_timestamp_seconds", last)
        reached = "The event time that the watermark has reached."
        self.watermark = self._metric("Gauge", "watermark_timestamp_seconds", reached)

    def _metric(self, kind: str, name: str, text: str, labels: tuple[str, ...] = ("query",)) -> Any:
        options = {"buckets": _SECONDS} if kind == "Histogram" else {}
        make = getattr(_client(), kind)
        return make(f"millpond_{name}", text, labels, registry=self.registry, **options)

    def record(self, query: str, subtask: SubtaskMetrics) -> None:
        """Add the metrics of a subtask in a batch.

        Args:
            query: the name of the query, or its id.
            subtask: the metrics.
        """
        metrics = subtask.metrics
        place = query, subtask.operator_uid, str(metrics["subtask"]), str(metrics["backend"])
        for name, value in numbers_of(metrics).items():
            found = _family(name)
            if found is None:
                continue
            family, labels = found
            child = self._made[family].labels(*place, *labels)
            method = {"Counter": "inc", "Gauge": "set", "Histogram": "observe"}[family.kind]
            getattr(child, method)(value * family.unit)
            if name.startswith(_USER) and value > 0:
                self._user.labels(*place, name.removeprefix(_USER)).inc(value)
        if metrics["source"] != "worker":
            self._restores.labels(*place, metrics["source"]).inc()

    def forget_gauges(self, query: str) -> None:
        """Remove the gauges of a query that has ended, since their values no longer hold."""
        for family, metric in self._made.items():
            if family.kind == "Gauge":
                metric.remove_by_labels({"query": query})


_endpoints: dict[tuple[str, int], Families] = {}
_starting = threading.Lock()


def families_at_endpoint(config: Config) -> Families | None:
    """Return the metrics that the configured endpoint serves, and start it; None without a port.

    All sessions of a process with the same address and port share the metrics.

    Raises:
        ConfigError: the client library is not installed, or the port cannot be opened.
    """
    address, port = config.metrics.prometheus_address, config.metrics.prometheus_port
    if port is None:
        return None
    with _starting:
        if (address, port) not in _endpoints:
            families = Families()
            try:
                _client().start_http_server(port, address, families.registry)
            except OSError as error:
                reason = f"cannot listen on {address}:{port}: {error.strerror}; choose a free port"
                raise ConfigError(_OPTION, reason, _PLACE) from error
            _LOG.info("serving metrics on http://%s:%s/metrics", address, port)
            _endpoints[address, port] = families
        return _endpoints[address, port]
