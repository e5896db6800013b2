"""The metrics of one subtask and micro-batch, as the worker puts them together."""

from __future__ import annotations

import os
import time
from typing import Any

import attrs
from millpond.backend import KeyedStateBackend
from millpond.spi.snapshots import SnapshotResult

from millpond_spark.worker.local_copies import executor_name

SUMMED = "summed"
"""Names the metrics of a function that are summed although a distribution's are named so."""
_READS = (".value", ".get", ".contains")


@attrs.define
class BatchMetrics:
    """Collects metrics while a batch runs: milliseconds by phase, and counts."""

    values: dict[str, Any] = attrs.field(factory=dict)
    _last: float = attrs.field(factory=time.perf_counter)
    _before: dict[str, int] = attrs.field(factory=dict)

    def lap(self, name: str) -> None:
        """Charge the time since the last lap to a phase."""
        now = time.perf_counter()
        self.values[name] = self.values.get(name, 0.0) + (now - self._last) * 1000
        self._last = now

    def begin(self, backend: KeyedStateBackend) -> None:
        """Note what a backend that is kept over batches has counted so far."""
        self._before = _counts(backend)

    def add(self, **metrics: Any) -> None:
        """Add metrics by name."""
        self.values.update(metrics)

    def finish(
        self, backend: KeyedStateBackend, result: SnapshotResult, source: str, *, native: bool
    ) -> dict[str, Any]:
        """All metrics of the batch.

        Args:
            backend: the backend after the batch.
            result: of its snapshot.
            source: where the backend came from.
            native: whether to ask the native library for its gauges too.
        """
        counts = {name: n - self._before.get(name, 0) for name, n in _counts(backend).items()}
        reads = sum(n for name, n in counts.items() if name.endswith(_READS))
        if reads and "store_reads" in counts:
            counts["cache_hits"] = max(0, reads - counts["store_reads"])
        gauges = backend.native_metrics() if native else {}
        figures = {**counts, **backend.restored_bytes.figures(), **backend.metrics.quantiles()}
        return {
            **self.values,
            **{_apart(name): value for name, value in figures.items()},
            **{f"native_{name}": value for name, value in gauges.items()},
            "bytes_written": result.bytes_written,
            "rows_written": result.rows_written,
            "snapshot_bytes": result.handle.size if result.handle else 0,
            "source": source,
            "executor": executor_name(),
            "pid": os.getpid(),
        }


def _apart(name: str) -> str:
    """What a backend's metric is called beside those of the function, which are ``user.…``."""
    return f"state.{name}" if name.startswith("user.") else name


def _counts(backend: KeyedStateBackend) -> dict[str, int]:
    return {**backend.counters(), **backend.metrics.calls()}


def numbers_of(metrics: dict[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, but for the process id."""
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and name != "pid"
    }
