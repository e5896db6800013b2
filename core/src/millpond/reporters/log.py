"""Metrics in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

_LOG = logging.getLogger("millpond.metrics")


def log_metrics(metrics: Mapping[str, float], labels: Mapping[str, str]) -> None:
    """Write one line at level INFO: labels, then metrics, both sorted by name."""
    place = " ".join(f"{name}={value}" for name, value in sorted(labels.items()))
    numbers = " ".join(f"{name}={value:g}" for name, value in sorted(metrics.items()))
    _LOG.info("%s: %s", place, numbers)
